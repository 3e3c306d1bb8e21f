"""``python -m hpccomm.trace FILE``: what a trace says, and who sent how much to whom."""
