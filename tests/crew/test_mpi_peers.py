"""What workers keep from round to round when they sum among themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from psopt.crew import mpi_peers
from psopt.crew.mpi_peers import MpiPeers
from psopt.crew.wire import Wire
from psopt.replica.spans import SpanLog


class Done:
    def Test(self) -> bool:
        return True

    def Cancel(self) -> None:
        raise AssertionError


class Nobody:
    """A communicator on which everything is done at once, and nothing arrives."""

    gone: frozenset[int] = frozenset()

    def look(self) -> None:
        pass

    def Isend(self, buf: Any, dest: int, tag: int) -> Done:
        return Done()

    def Irecv(self, buf: Any, source: int, tag: int) -> Done:
        return Done()

    def Recv(self, buf: Any, source: int, tag: int) -> None:
        raise AssertionError

    def probe(self, source: int | None, tag: int) -> tuple[int, int] | None:
        return None


@pytest.mark.parametrize("size", [2, 3])
def test_bytes_of_gradients_are_found_again(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when statistics and counters, which are new in each round, are summed beside them."""
    seen: list[int] = []
    raw_bytes = mpi_peers.raw_bytes

    def counted(tensor: torch.Tensor) -> Any:
        seen.append(tensor.data_ptr())
        return raw_bytes(tensor)

    monkeypatch.setattr(mpi_peers, "raw_bytes", counted)
    peers = MpiPeers(Wire(Nobody()), 0, size, SpanLog())
    rows = [torch.ones(6), torch.ones(6)]
    kept = []
    for _ in range(4):
        seen.clear()
        peers.finish()
        peers.sum_rows(rows, [2] * size, torch.empty(6))
        for like in (torch.ones(3), torch.ones(1, dtype=torch.int64)):
            peers.sum_rows([like.clone(), like.clone()], [2] * size, torch.empty_like(like))
        kept.append((sum(row.data_ptr() in seen for row in rows), len(peers._pieces)))
    others = size - 1
    assert kept == [(2, 3 * 2 * others), *[(0, 3 * 2 * others)] * 3]
