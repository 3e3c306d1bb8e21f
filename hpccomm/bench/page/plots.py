"""The page's figures as PNG and SVG, drawn by matplotlib (extra ``report``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hpccomm.bench.page.shapes import Bars, Best, Curves, Figure, Heat
from hpccomm.topology.cores import Host
from hpccomm.units import format_bytes

FORMATS = ("svg", "png")
_COLOURS = ("#0063b1", "#c2410c", "#15803d", "#8b2fa8", "#8a6d00", "#0e7490", "#be185d", "#52525b")
_DASHES = ("-", "--", ":", "-.")
_MOST_FRAMES = 400
_MOST_HOSTS = 64
_DARK = 0.6
"""From which share of the heat map's scale on its colours are dark."""
_PLAIN: dict[Any, Any] = {"text.parse_math": False, "svg.fonttype": "none"}  # a $ in a host's name is a $


def save(figures: Sequence[Figure], folder: Path) -> dict[str, list[str]]:
    """Draw figures into files.

    Args:
        figures: What is drawn.
        folder: Where the files go.

    Returns:
        The files' names, by the figure's.
    """
    found = {}
    with mpl.rc_context(_PLAIN):
        for figure in figures:
            canvas = Canvas(layout="constrained", dpi=110)
            _DRAW[figure.kind](canvas, figure)
            found[figure.name] = _written(canvas, figure.name, folder)
    return found


def save_placement(hosts: Sequence[Host], host_of_rank: Sequence[int], name: str, folder: Path) -> list[str]:
    """Draw which ranks are on which host, and give the files' names."""
    with mpl.rc_context(_PLAIN):
        canvas = Canvas(figsize=(8, 1 + 0.35 * min(len(hosts), _MOST_HOSTS)), layout="constrained", dpi=110)
        axes = canvas.subplots()
        shown = hosts[:_MOST_HOSTS]
        for row, host in enumerate(shown):
            ranks = [rank for rank, of in enumerate(host_of_rank) if of == row]
            for place, rank in enumerate(ranks):
                crowded = place >= host.cores
                axes.add_patch(Rectangle((place, row - 0.4), 0.9, 0.8, color=_COLOURS[1 if crowded else 0]))
                if len(ranks) <= 40:
                    axes.text(place + 0.45, row, str(rank), color="white", ha="center", va="center", fontsize=7)
        axes.set(
            xlim=(0, max(host.ranks for host in shown)),
            ylim=(len(shown) - 0.5, -0.5),
            xlabel="ranks of a host; those beyond its cores in another colour",
            title="placement" + f", the first {_MOST_HOSTS} hosts" * (len(hosts) > _MOST_HOSTS),
        )
        axes.set_xticks([])
        axes.set_yticks(range(len(shown)), [f"{host.name} ({host.cores} cores)" for host in shown])
        return _written(canvas, name, folder)


def _written(canvas: Canvas, name: str, folder: Path) -> list[str]:
    files = [f"{name}.{kind}" for kind in FORMATS]
    for file in files:
        canvas.savefig(folder / file)
        canvas.set_layout_engine("none")  # what the first one found is right for all, and half of the time
    return files


def _curves(canvas: Canvas, figure: Curves) -> None:
    canvas.set_size_inches(8, 5)
    axes = canvas.subplots()
    for one in figure.series:
        sizes, values = zip(*one.points, strict=True)
        (line,) = axes.plot(sizes, values, marker="o", markersize=3, label=one.name)
        style = _DASHES[one.colour // 8 % 4] if figure.across.joined else "none"
        line.set(color=_COLOURS[one.colour % 8], linestyle=style)
    if figure.across.unit == "bytes":
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_bytes(round(size))))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if figure.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
    else:
        axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel=figure.across.label, ylabel=figure.label, title=figure.title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _bars(canvas: Canvas, figure: Bars) -> None:
    canvas.set_size_inches(8, 1.6 + 0.45 * len(figure.rows))
    axes = canvas.subplots()
    lefts = [0.0] * len(figure.rows)
    for part, name in enumerate(figure.parts):
        values = [row.values[part] for row in figure.rows]
        axes.barh(range(len(values)), values, 0.6, left=lefts, color=_COLOURS[part % 8], label=name)
        lefts = [left + value for left, value in zip(lefts, values, strict=True)]
    axes.set_yticks(range(len(figure.rows)), [row.name for row in figure.rows], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=figure.label, title=figure.title)
    axes.grid(axis="x", alpha=0.3)
    canvas.legend(loc="outside lower center", ncols=3, fontsize=8)


def _heat(canvas: Canvas, figure: Heat) -> None:
    canvas.set_size_inches(8, 7)
    axes = canvas.subplots()
    times = [[math.nan] * figure.side for _ in range(figure.side)]
    for cell in figure.cells:
        times[cell.row][cell.column] = cell.times
    extent = (0, len(figure.hosts), len(figure.hosts), 0)
    norm = LogNorm(0.25, 4)
    image = axes.imshow(times, cmap="RdBu_r", norm=norm, extent=extent, interpolation="nearest")
    bar = canvas.colorbar(image, ax=axes, label="times as slow as the median of its kind", extend="both")
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["1/4", "1/2", "1", "2", "4"])
    bar.minorticks_off()
    slow = [cell for cell in figure.cells if cell.slow]
    for cell in slow if len(slow) <= _MOST_FRAMES else ():
        corner = (cell.column * figure.block, cell.row * figure.block)
        axes.add_patch(Rectangle(corner, figure.block, figure.block, fill=False, edgecolor="black"))
    if figure.side <= 8:
        for cell in figure.cells:
            ink = "white" if abs(math.log(cell.times, 4)) > _DARK else "black"
            at = (cell.column + 0.5, cell.row + 0.5)
            axes.text(*at, f"{cell.value:.3g}", ha="center", va="center", fontsize=8, color=ink)
    firsts = {host: figure.hosts.index(host) for host in dict.fromkeys(figure.hosts)}
    if len(firsts) <= 32:
        axes.set_yticks(
            [rank + 0.5 for rank in firsts.values()],
            [f"{figure.labels[host]}: {rank}" for host, rank in firsts.items()],
        )
    step = -(-len(figure.hosts) // 16)
    ranks = range(0, len(figure.hosts), step)
    axes.set_xticks([rank + 0.5 for rank in ranks], [str(rank) for rank in ranks])
    axes.set(xlabel="to rank", ylabel="from rank")
    canvas.suptitle(f"{figure.title} ({figure.unit}); framed: slow", fontsize=10)


def _best(canvas: Canvas, figure: Best) -> None:
    canvas.set_size_inches(3 + 1.2 * len(figure.ranks), 1.5 + 0.3 * len(figure.sizes))
    axes = canvas.subplots()
    for row, cells in enumerate(figure.cells):
        for column, cell in enumerate(cells):
            if cell is not None:
                colour = _COLOURS[figure.backends[cell[0]] % 8]
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour))
                text = f"{cell[1][cell[0]]:.4g} us"
                axes.text(column, row, text, ha="center", va="center", color="white", fontsize=8)
    axes.set(xlim=(-0.5, len(figure.ranks) - 0.5), ylim=(len(figure.sizes) - 0.5, -0.5))
    axes.set_xticks(range(len(figure.ranks)), figure.ranks)
    axes.set_yticks(range(len(figure.sizes)), [format_bytes(size) for size in figure.sizes])
    marks = [
        Rectangle((0, 0), 1, 1, color=_COLOURS[colour % 8], label=name) for name, colour in figure.backends.items()
    ]
    canvas.legend(handles=marks, loc="outside lower center", fontsize=8)
    axes.set_title(f"fastest: {figure.title}", fontsize=10)


_DRAW: Mapping[str, Callable[[Canvas, Any], None]] = {"curves": _curves, "bars": _bars, "heat": _heat, "best": _best}
