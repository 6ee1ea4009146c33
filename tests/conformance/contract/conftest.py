"""The targets of the contract suite: the fixture `spec` names one, `real_cluster` starts real ones.

`client/` and `wire/` wrap a target in what their tests need.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.conformance.contract.targets import TargetSpec, targets

RunningCluster = Callable[[TargetSpec], RealCluster]


UVLOOP_LINES = ("0.8.2", "0.10")
"""The lines of the embedded cluster that tests run on with uvloop: one for each message format."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests on uvloop on two embedded lines only, unless `--loop` names the loops."""
    if config.getoption("--loop") != "auto":
        return
    left_out = {item for item in items if _is_left_out(item)}
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_left_out(item: pytest.Item) -> bool:
    if not {"uvloop", "both_loops"} <= {*item.keywords, *_params(item)}:
        return False
    spec: TargetSpec | None = item.callspec.params.get("spec")  # type: ignore[attr-defined]
    return item.get_closest_marker("real") is not None or (
        spec is not None and spec.version not in UVLOOP_LINES
    )


def _params(item: pytest.Item) -> list[str]:
    return item.name.partition("[")[2].rstrip("]").split("-")


@pytest.fixture(params=targets())
def spec(request: pytest.FixtureRequest) -> TargetSpec:
    """The target of the test, embedded or real."""
    target: TargetSpec = request.param
    return target


@pytest.fixture(scope="module")
def real_cluster(request: pytest.FixtureRequest) -> RunningCluster:
    """A function that returns the session's real cluster of a target.

    It checks once per module that the cluster is healthy: the tests of a module leave it so.
    """
    healthy: dict[TargetSpec, RealCluster] = {}

    def running(spec: TargetSpec) -> RealCluster:
        if spec not in healthy:
            clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
            healthy[spec] = clusters.get(spec.version, spec.brokers)
        return healthy[spec]

    return running
