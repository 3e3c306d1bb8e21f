"""Draw the contenders' times over the size, a picture for each collective."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw bytes a second over bytes, on logarithmic axes."""
    mpl.use("Agg")
    collectives = list(dict.fromkeys(row["collective"] for row in rows))
    figure, axes = plt.subplots(1, len(collectives), figsize=(7 * len(collectives), 5), squeeze=False)
    for axis, collective in zip(axes[0], collectives, strict=True):
        for name in dict.fromkeys(row["contender"] for row in rows):
            own = sorted(
                (row["size_bytes"], row["time_us_median"])
                for row in rows
                if (row["collective"], row["contender"]) == (collective, name)
            )
            if own:
                axis.plot([size for size, _ in own], [size / time / 1e3 for size, time in own], marker="o", label=name)
        axis.set(xscale="log", yscale="log", title=collective, xlabel="size in bytes", ylabel="size / time in GB/s")
        axis.grid(visible=True, which="both", alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(file)
