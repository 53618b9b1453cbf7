from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes for all tests; arrays have at most 11 tasks."""
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running
