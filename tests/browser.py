"""A headless Chromium that a test drives over a pipe by the DevTools protocol, without a library for it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chrome-headless-shell", "google-chrome")
MISSING = f"none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium-headless-shell fonts-dejavu-core)"
DEADLINE_S = 30.0
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
_ON_PIPE = ("sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1', "sh")  # Chromium reads from 3, writes to 4
_COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
_DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def executable() -> str | None:
    """Find Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page; a context manager.

    Args:
        program: Chromium.
        profile: An empty folder.

    Attributes:
        complaints: What the page's console was told, errors and exceptions too.
    """

    def __init__(self, program: str, profile: str) -> None:
        self.complaints: list[str] = []
        self._session: dict[str, str] = {}
        self._number, self._unread = 0, b""
        command = [*_ON_PIPE, program, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, start_new_session=True)

    def __enter__(self) -> Browser:
        (page,) = (one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command, and its result."""
        assert self._process.stdin is not None
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            if answer.get("method") in _COMPLAINTS:
                self.complaints.append(json.dumps(answer["params"]))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript in the page, and wait where it promises a value."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def open(self, address: str) -> None:
        """Open a page, and wait until it is drawn."""
        self.call("Page.navigate", url=address)
        loaded = 'document.readyState === "complete"'
        self.evaluate(f'{loaded} || new Promise(done => addEventListener("load", () => done(true)))')
        self.evaluate(_DRAWN)

    def show(self, *, width: int, scheme: str) -> None:
        """Give the window so many pixels and a colour scheme, and wait until the page is drawn again."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.evaluate(_DRAWN)

    def hover(self, element: str, across: float = 0.5, down: float = 0.5) -> None:
        """Move the mouse to a point of the element that a CSS selector finds, in shares of its size."""
        box = f"document.querySelector({json.dumps(element)})"
        x, y = self.evaluate(
            f'{box}.scrollIntoView({{ block: "center" }}); (box => '
            f"[box.left + {across} * box.width, box.top + {down} * box.height])({box}.getBoundingClientRect())"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\0" not in self._unread:
            if not select.select([self._process.stdout], [], [], DEADLINE_S)[0]:
                raise TimeoutError(f"the browser says nothing for {DEADLINE_S:g} s")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise RuntimeError("the browser ended")
            self._unread += read
        text, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(text))
