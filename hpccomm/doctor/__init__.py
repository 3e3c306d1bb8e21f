"""What is wrong with a job or a machine: ``python -m hpccomm.doctor``. One file a check; none needs torch or MPI."""
