"""The report: one page that opens in a browser from a file, made of the benchmark's JSON, and its plots as PNG and SVG.

`runs` reads tables and pairs, `readings` all else; `summary` and `advice` say in words what they mean by stated rules.
`figures` is what is drawn of tables and pairs; `sections` has a file each for what is told and drawn of start, buckets,
overlap, workloads and stability. A figure is of one of the kinds in `shapes`: ``page.js`` draws it in the browser, with
a file a kind, and `plots` for files. `html` puts the page together from ``page.html``. `write` is the way in.
"""

from hpccomm.bench.page.write import prepare, write

__all__ = ["prepare", "write"]
