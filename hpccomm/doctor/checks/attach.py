"""Whether ranks of a host may copy from each other's memory: without, every message is copied twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from hpccomm.doctor.case import Case, Facts, names
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.checks.tools import TOOL_S, has_container, read
from hpccomm.doctor.finding import Finding, Severity

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_HELD = """if True:
    import ctypes, os
    text = ctypes.create_string_buffer(b"nonce")
    print(os.getpid(), ctypes.addressof(text), flush=True)
    input()
"""
_READ = """if True:
    import ctypes, os, sys
    class Piece(ctypes.Structure):
        _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    libc, own = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(6)
    here, there = Piece(ctypes.addressof(own), 5), Piece(int(sys.argv[2]), 5)
    libc.process_vm_readv.argtypes = [ctypes.c_int, *[ctypes.c_void_p, ctypes.c_ulong] * 2, ctypes.c_ulong]
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    got = libc.process_vm_readv(int(sys.argv[1]), ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
    print("yes" if got == 5 and own.value == b"nonce" else os.strerror(ctypes.get_errno()))
"""


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Have one child read another's memory, as ranks are each other's siblings."""
    python = [sys.executable, "-IS", "-c"]
    with subprocess.Popen([*python, _HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdin is not None
        assert held.stdout is not None
        try:
            where = held.stdout.readline().split()
            ran = subprocess.run([*python, _READ, *where], capture_output=True, text=True, timeout=TOOL_S)
        finally:
            held.kill()
    answer = ran.stdout.strip() or (ran.stderr.strip().splitlines() or ["no answer"])[-1]
    return {"answer": answer, "ptrace_scope": read(_YAMA), "container": has_container(environ)}


def judge(case: Case) -> Iterator[Finding]:
    """Warn where it is forbidden and several ranks share a host."""
    forbidden = [(host, facts) for host, facts in case.of_hosts("attach") if facts["answer"] != "yes"]
    if not forbidden:
        return
    facts = forbidden[0][1]
    restricted = facts["ptrace_scope"] not in ("", "0")
    if restricted:
        why, setting = f"; {_YAMA} is {facts['ptrace_scope']}", "sysctl kernel.yama.ptrace_scope=0"
    elif facts["container"]:
        why, setting = f", in a container ({facts['container']})", "docker run --cap-add=SYS_PTRACE …"
    else:
        why, setting = "", ""
    several = any(host.num_ranks > 1 for host, _ in forbidden)
    yield Finding(
        Severity.WARNING if several else Severity.NOTE,
        "attach",
        f"ranks may not read each other's memory on {names([host for host, _ in forbidden])}",
        found=f"process_vm_readv from one child to another: {facts['answer']}{why}; large messages inside a host "
        "are copied twice, and Open MPI may complain of each",
        remedy="permit cross-memory attach, or tell Open MPI not to try: export OMPI_MCA_smsc=^cma",
        setting=setting,
    )


def show(facts: Facts) -> Iterator[Line]:
    """Say whether it works."""
    scope = f" (ptrace_scope {facts['ptrace_scope']})" if facts["ptrace_scope"] else ""
    answer = "permitted" if facts["answer"] == "yes" else f"forbidden: {facts['answer']}"
    yield Line("cross-memory", f"{answer}{scope}")


CHECK = Check("attach", look, judge, show)
