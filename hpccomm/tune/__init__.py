"""Measure which backend is the fastest for which collective and size, and write the table that `auto` reads.

`fastest` makes a table of the benchmark's rows, `explain` says what it means for training; `__main__` is the command.
"""
