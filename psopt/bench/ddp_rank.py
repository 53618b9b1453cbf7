"""One rank of the yardstick: PyTorch's DistributedDataParallel over gloo, the same model, batches and optimizer.

Run by ``psopt.bench.training``: ``python -m psopt.bench.ddp_rank CONFIG RANK SIZE PORT``; rank 0
prints seconds and samples of the timed steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from psopt import job


def main(path: str, rank: int, size: int, port: str) -> None:
    """Train for the job's epochs on this rank's share of the batches."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=size)
    parts = job.assemble(job.load(Path(path)))
    model = DistributedDataParallel(parts.model.module)
    options = parts.config.optimizer
    assert options is not None
    optimizer = options.cls(model.parameters(), **options.options)
    tickets = parts.tickets()
    samples = steps = 0
    start = 0.0
    for epoch in range(parts.config.train.epochs):
        plan = tickets.plan(epoch)
        for batch in range(rank, len(plan) - len(plan) % size, size):
            x, y = parts.data.train.batch(plan.rows(batch))
            optimizer.zero_grad()
            loss = parts.loss(model(x), y)
            torch.autograd.backward(loss)
            optimizer.step()
            loss.item()
            steps += 1
            samples += plan.count(batch) * size if steps > 8 else 0
            start = time.perf_counter() if steps == 8 else start
    seconds = time.perf_counter() - start
    if rank == 0:
        print(json.dumps({"seconds": seconds, "samples": samples}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
