"""How a job gets onto a machine: the local mpirun, and what `psopt doctor` checks about it."""
