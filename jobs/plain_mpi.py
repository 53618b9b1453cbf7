"""The yardstick of the exchange benchmark: a bare Send + Recv of as many bytes, with mpi4py alone.

mpirun -n 2 python jobs/plain_mpi.py ELEMENTS STEPS
"""

import json
import sys
import time
from statistics import median

import numpy as np
from mpi4py import MPI

elements, steps = int(sys.argv[1]), int(sys.argv[2])
comm = MPI.COMM_WORLD
parameters, gradient = np.zeros(elements, np.float32), np.ones(elements, np.float32)
seconds = []
for _ in range(steps):
    start = time.perf_counter()
    if comm.Get_rank() == 0:
        comm.Send(parameters, 1)
        comm.Recv(gradient, 1)
    else:
        comm.Recv(parameters, 0)
        comm.Send(gradient, 0)
    seconds.append(time.perf_counter() - start)
if comm.Get_rank() == 0:
    print(json.dumps({"push_pull": median(seconds[2:])}), flush=True)
