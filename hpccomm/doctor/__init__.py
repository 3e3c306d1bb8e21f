"""What is wrong with a set-up, a job or a machine: ``python -m hpccomm.doctor``. One file a check."""
