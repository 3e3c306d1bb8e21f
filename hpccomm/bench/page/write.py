"""Write a report into a folder: index.html, its plots as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpccomm.bench.compare import Recorded
from hpccomm.bench.page import html
from hpccomm.bench.page.runs import Run, read
from hpccomm.bench.page.shapes import Figure
from hpccomm.errors import OptionError
from hpccomm.whole import write_whole

PAGE, RESULTS, _PLOTS = "index.html", "results.json", "plots"


def prepare(folder: Path) -> None:
    """Make the folder, before anything is measured for it.

    Raises:
        OptionError: It cannot be made or written to.
    """
    with _refusing(folder):
        (folder / _PLOTS).mkdir(parents=True, exist_ok=True)
        write_whole(folder / PAGE, "<!DOCTYPE html><title>hpccomm</title><p>The run has not ended yet.</p>\n")


def write(folder: Path, recorded: Sequence[Recorded], *, results: str | None = None) -> list[str]:
    """Write the report of one run or several.

    Args:
        folder: Where it goes; is made.
        recorded: The runs.
        results: Text of a JSON file to put beside the page, or None.

    Returns:
        What to tell the user.

    Raises:
        OptionError: A run is not what the benchmark writes, or a file cannot be written.
    """
    runs = [read(one) for one in recorded]
    figures = html.all_figures(runs)
    with _refusing(folder):
        (folder / _PLOTS).mkdir(parents=True, exist_ok=True)
        images, remark = _images(runs, figures, folder / _PLOTS)
        if results is not None:
            write_whole(folder / RESULTS, results)
        write_whole(folder / PAGE, html.page(runs, figures, images))
    return [f"report: {folder / PAGE}{remark}"]


def _images(runs: Sequence[Run], figures: Sequence[Figure], folder: Path) -> tuple[Mapping[str, list[str]], str]:
    """Draw the figures into files where matplotlib is there, else say that it is not."""
    try:
        from hpccomm.bench.page import plots
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return {}, "; without plots as PNG and SVG, which take matplotlib: pip install 'hpccomm[report]'"
    found = plots.save(figures, folder)
    for place, run in enumerate(runs, 1):
        if run.host_of_rank:
            name = f"placement-{place}"
            found[name] = plots.save_placement(run.hosts, run.host_of_rank, name, folder)
    return {name: [f"{_PLOTS}/{file}" for file in files] for name, files in found.items()}, ""


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "name a folder that rank 0 may write to"
        raise OptionError(
            f"write a report to --report {folder}", found=str(error), remedy=remedy, everywhere=True
        ) from error
