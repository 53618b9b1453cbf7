"""The contract on real ranks: ``mpirun -n 4 python -m tests.crew.contract_job RESULTS``.

Rank 0 runs every check with 1, 2 and 3 workers, and the wire's round trips with rank 1; each check
has a crew of its own on the same ranks.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from psopt.crew.guard import guarded
from psopt.crew.mpi import World
from psopt.crew.mpi_crew import MpiCrew
from psopt.crew.mpi_link import MpiLink
from psopt.crew.process import die_with_parent
from psopt.crew.wire import Tag, Wire
from psopt.replica.spans import SpanLog
from psopt.roles.worker import serve
from tests.crew import wire_cases
from tests.crew.contract import CHECKS, Case, Check


def runs(world: World) -> Iterator[tuple[str, Check, int]]:
    for name, check in CHECKS.items():
        for workers in range(1, world.size):
            yield name, check, workers


def coordinate(world: World, path: Path) -> int:
    results: dict[str, Any] = {}

    def note(key: str, result: Any) -> None:
        results[key] = result
        path.write_text(json.dumps(results))

    for chunk in wire_cases.CHUNKS:
        wire = Wire(world.ranks, chunk)
        for name in wire_cases.TENSORS:
            try:
                wire_cases.round_trip(wire, 1, name)
                note(f"wire/{chunk}/{name}", {"result": None})
            except AssertionError:
                note(f"wire/{chunk}/{name}", traceback.format_exc())
    for name, check, workers in runs(world):
        spans: list[Any] = []
        wire = Wire(world.ranks, 1 << 14)
        crew = MpiCrew(wire, workers, lambda rank, span, to=spans: to.append((rank, *span)))
        assert [one["rank"] for one in crew.open()] == list(range(1, workers + 1))
        try:
            note(f"{name}/{workers}", {"result": check.run(Case(crew, check.setup))})
        except (AssertionError, RuntimeError):
            note(f"{name}/{workers}", traceback.format_exc())
        crew.close()
        assert all(wire.probe(None, tag) is None for tag in Tag if tag != Tag.HELLO), name
        assert {rank for rank, *_ in spans} == set(range(workers + 1))
        assert all(start <= end for _, _, start, end in spans)
    return 0


def work(world: World) -> int:
    if world.local_worker == 0:
        for chunk in wire_cases.CHUNKS:
            for name in wire_cases.TENSORS:
                wire_cases.answer(Wire(world.ranks, chunk), 0, name).wait()
    for _, check, workers in runs(world):
        if world.rank <= workers:
            clock = SpanLog()
            link = MpiLink(Wire(world.ranks, 1 << 14), world.rank, workers + 1, clock)
            serve(link, check.setup.replica(clock=clock), {"rank": world.rank})
    return 0


def main() -> int:
    die_with_parent()
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    world = World()
    if world.rank == 0:
        return guarded(world, lambda: coordinate(world, Path(sys.argv[1])))
    return guarded(world, lambda: work(world))


if __name__ == "__main__":
    sys.exit(main())
