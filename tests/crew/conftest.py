"""The contract's run on real ranks, once for all its tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.crew.ranks import run_ranks
from tests.threads import one_thread

__all__ = ["one_thread"]


@pytest.fixture(scope="session")
def real_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Result of each check by its name, or how it failed."""
    path = tmp_path_factory.mktemp("ranks") / "results.json"
    run_ranks(4, ["-m", "tests.crew.contract_job", str(path)], seconds=240)
    results: dict[str, Any] = json.loads(path.read_text())
    return results
