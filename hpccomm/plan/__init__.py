"""Planning: what collectives will cost at a scale that was not measured, ``python -m hpccomm.plan --fit RESULT.json``.

`observations` reads the benchmark's results, `fitting` finds links that explain them at `pricing`'s prices, `outlook`
predicts with these, `thumb` holds the rule of thumb against it, `report` shows it. It needs neither ranks nor torch.
"""
