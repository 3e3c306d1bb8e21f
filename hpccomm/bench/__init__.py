"""The benchmark: collectives over several backends side by side, ``mpirun -np 32 python -m hpccomm.bench``."""
