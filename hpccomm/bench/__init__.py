"""The benchmark: collectives over several backends side by side, ``mpirun -np 32 python -m hpccomm.bench``.

From the outside in: `session` is a run, `series` one table of it, `measure` one row of that, `case` one operation.

Where a change belongs:

* options by a name: `suites`
* an option: `options` (the value), `arguments` (the command line)
* a collective: an entry of `collectives`
* a default backend: `candidates`
* inputs and what must come out: `inputs` (by formula), `case` (of one collective); what else is wrong: `verdict`
* a statistic: `metrics` and `definitions` (its meaning), then a column of `files` or of `layout` (the shown table)
* a measurement of single pairs of ranks: `pairs`; the page of ``--report``: `page`
* a measurement that is no table of one collective: a file of `measures`; models by a name: `models`; what the page
  tells of it: `page.readings` and a file of `page.sections`
* a warning, on the page and on the terminal: `page.advice`
* a line above or below a table: `report`; a value that describes the run: `environment`
"""
