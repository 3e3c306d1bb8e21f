"""hpccomm beside its peers on one host: bare MPI libraries, plain Gloo, and what the memory allows."""
