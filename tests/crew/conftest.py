"""The contract's run on real ranks, once for all its tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.crew.ranks import run_ranks


@pytest.fixture(scope="session")
def real_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Result of each check by its name, or how it failed."""
    path = tmp_path_factory.mktemp("ranks") / "results.json"
    run_ranks(4, ["-m", "tests.crew.contract_job", str(path)], seconds=240)
    results: dict[str, Any] = json.loads(path.read_text())
    return results


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As on the ranks: the number of threads may show in the last bit, and tests share the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
