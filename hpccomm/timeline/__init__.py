"""The trace of a job.

`recorder` is what a rank notes, `clock` how its clock is brought to rank 0's, `meeting` how rank 0 gets both, `chrome`
the file that comes of it, and what is read out of that again.
"""
