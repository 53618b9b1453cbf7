"""The yardstick of the computing share: BSP by hand. Sendrecv, one addition, torch's step; nothing else.

mpirun -n 2 python jobs/plain_bsp.py CONFIG
"""

import json
import sys
import time
from pathlib import Path

import torch
from mpi4py import MPI

from psopt import job

comm, parts = MPI.COMM_WORLD, job.assemble(job.load(Path(sys.argv[1])))
rank, options, model = comm.Get_rank(), parts.config.optimizer, parts.model
mine, other = torch.empty_like(model.parameters), torch.empty_like(model.parameters)
weights = torch.nn.Parameter(model.parameters)
optimizer = options.cls([weights], **options.options)
views, tickets, passes = model.split(mine), parts.tickets(), []
torch.set_num_threads(1)
for epoch in range(parts.config.train.epochs):
    plan = tickets.plan(epoch)
    for batch in range(rank, len(plan) - len(plan) % 2, 2):
        start = time.perf_counter()
        x, y = parts.data.train.batch(plan.rows(batch))
        loss = parts.loss(model.module(x), y)
        torch.autograd.backward(loss)
        model.gather_gradients(views)
        loss.item()
        passes.append((start, time.perf_counter()))
        comm.Sendrecv(mine.numpy(), 1 - rank, recvbuf=other.numpy())
        weights.grad = (mine + other if rank == 0 else other + mine).mul_(0.5)
        optimizer.step()
timed = passes[8:]  # after the warm-up
share = sum(end - start for start, end in timed) / (timed[-1][1] - timed[0][0])
shares = comm.gather(share)
if rank == 0:
    print(json.dumps({"computing": sum(shares) / 2}), flush=True)
