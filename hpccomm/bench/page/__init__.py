"""The report: one page that opens in a browser from a file, made of the benchmark's JSON, and its plots as PNG and SVG.

`runs` reads results, `summary` and `advice` say in words what they mean by stated rules, `figures` is what is drawn, of the
kinds in `shapes`, ``page.js`` with a file a kind draws it in the browser and `plots` for files, `html` puts the page
together from ``page.html``. `write` is the way in.
"""

from hpccomm.bench.page.write import prepare, write

__all__ = ["prepare", "write"]
