"""What a console keeps of a large cluster, and how long one step and one page are.

Nothing here measures time: bytes, calls of functions and rows are counted.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aiokafka08._tools.console import cluster_view
from aiokafka08._tools.console.application import make_console
from aiokafka08._tools.console.cluster_view import ClusterView, Histories, view_of
from aiokafka08._tools.console.guard import Admission
from aiokafka08._tools.console.lag_table import KnownLags, LagRow, LagTable
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    GroupSample,
    PackedOffsets,
    PartitionSample,
    TopicSample,
)
from aiokafka08._tools.monitoring.point_history import PointHistory
from aiokafka08.structs import TopicPartition
from tests.console.consoles import client_of, text_of

PARTITIONS = 3
STARTED = ClusterSample({}, {})


def large(topics: int, groups: int, at: int) -> ClusterSample:
    """Return a sample; each number is another one at each `at`, and no object is of another one."""
    names = [f"topic-{number:05}" for number in range(topics)]
    return ClusterSample(
        {1: BrokerSample(1, "a:1")},
        {
            name: TopicSample(
                {
                    number: PartitionSample(1, (1,), (1,), start=0, end=9000 * at + index)
                    for number in range(PARTITIONS)
                }
            )
            for index, name in enumerate(names, 1000)
        },
        tuple(
            GroupSample(
                f"group-{group:02}",
                "kafka",
                ("a member",),
                {
                    TopicPartition(name, number): 300 + group + at
                    for name in names
                    for number in range(PARTITIONS)
                },
            )
            for group in range(groups)
        ),
    )


class Watched:
    """Makes views of samples, as the console does."""

    def __init__(self) -> None:
        self.history, self.histories = ClusterHistory(), Histories()
        self.before: tuple[float, ClusterSample] | None = None
        self.view: ClusterView | None = None

    def see(self, at: float, sample: ClusterSample) -> ClusterView:
        """Make a view of a sample, and add it to the histories."""
        _, earlier = self.before or (0.0, STARTED)
        self.history.add(at, sample)
        sample = sample.sharing(earlier)
        self.view = view_of(
            sample,
            self.before,
            self.before,
            self.history,
            at,
            1000.0 + at,
            has_zookeeper=False,
            last=self.view,
        )
        self.before = (at, sample)
        self.histories.add(self.view)
        return self.view


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_memory_of_views_for_each_group_and_partition_is_small() -> None:
    topics, used, peaks = 200, [], []
    for groups in (2, 12):
        watched = Watched()
        for at in range(3):
            watched.see(10.0 * at, large(topics, groups, at))
        sample = large(topics, groups, 4)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        watched.see(40.0, sample)
        _, peak = tracemalloc.get_traced_memory()
        peaks.append(peak - before)
        del sample
        gc.collect()
        used.append(tracemalloc.get_traced_memory()[0])
        del watched
        gc.collect()
    rows = 10 * topics * PARTITIONS
    assert (used[1] - used[0]) / rows < 170
    assert (peaks[1] - peaks[0]) / rows < 100


def test_rows_of_a_table_are_those_it_was_made_of() -> None:
    rows = [
        LagRow("g", "kafka", "a", 0, 4, 9, 5, "m", 6, 3.0, True, 2),
        LagRow("g", "kafka", "a", 1, 9, 9, 0, None, 0, 0.0, False, 0),
        LagRow("g", "kafka", "a", 10, None, 9, None, "n", 0, None, False, 0),
        LagRow("g", "kafka", "b", 0, 7, None, None, None, None, None, False, 0),
        LagRow("g", "kafka", "c", 0, 2**63 - 1, 9, 10 - 2**63, None, 9, 2.0, False, 0),
        LagRow("g", "kafka", "c", 1, 1, 2**63 - 1, 2**63 - 2, None, 0, None, False, 0),
    ]
    table = LagTable("g", "kafka", rows, 2.5, {})
    assert list(table) == rows
    assert [list(table.of_topic(topic)) for topic in "abcd"] == [rows[:3], rows[3:4], rows[4:], []]
    assert list(table.lag_by_topic()) == [("a", 5), ("c", 2**63 - 2)]
    none = KnownLags(table.known.tps, bytes(len(rows)))
    other = KnownLags(((TopicPartition("a", 1)),), b"\1")
    assert table.known.without(none) == {("a", 0), ("a", 1), ("c", 0), ("c", 1)}
    assert table.known.without(other) == {("a", 0), ("c", 0), ("c", 1)}
    assert not none.without(table.known) | other.without(table.known)
    assert table.unknown_topics() == {"a", "b"}
    committed = [TopicPartition(*at) for at in (("a", 1), ("a", 10), ("a", 11), ("d", 0))]
    assert [table.has_committed(tp) for tp in committed] == [True, False, False, False]
    for name, column in table.columns.items():
        wanted = [
            (row.topic, row.partition) if name == "topic" else getattr(row, name) for row in rows
        ]
        assert [*map(column, range(len(table)))] == wanted


def test_committed_offsets_are_equal_to_a_dict_of_them() -> None:
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    first = PackedOffsets({one: 4, other: 0})
    second = PackedOffsets({other: 5, one: 4}, None, first)
    assert first == {one: 4, other: 0} == dict(first.items())
    assert second == {one: 4, other: 5} != first
    assert list(second.items()) == [(one, 4), (other, 5)]
    assert (second[other], second.get(TopicPartition("t", 2)), len(second)) == (5, None, 2)
    assert next(iter(second)) is one
    assert PackedOffsets({one: 4}, first) == {one: 4}


def test_points_are_fewer_if_there_are_many_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "_POINTS", 400)
    watched = Watched()
    for at in range(60):
        watched.see(10.0 * at, large(1, 1, at))
    [[history]] = [one.values() for one in watched.histories.group_topics.values()]
    assert len(history.points()) == 60
    for at in range(60, 62):
        watched.see(10.0 * at, large(10, 1, at))
    [found] = [one.values() for one in watched.histories.group_topics.values()]
    assert len(found) == 10
    assert sorted(len(one.points()) for one in found) == [2] * 9 + [40]
    [whole] = watched.histories.groups.values()
    assert len(whole.points()) == 62


def test_limit_of_a_history_takes_old_points_first() -> None:
    history = PointHistory(10, 60)
    for second in range(0, 3600, 20):
        history.add(float(second), second)
    before = history.points()
    history.limit(5, 8)
    assert history.points()[-5:] == before[-5:]
    assert [at for at, _ in history.points()[:-5]] == [3000.0 + 60 * at for at in range(1, 9)]
    history.limit(3, 0)
    assert history.points() == before[-3:]
    history.add(3600.0, 0)
    assert [at for at, _ in history.points()] == [3560.0, 3580.0, 3600.0]


def test_steps_of_histories_do_not_grow_with_the_cluster() -> None:
    def longest(topics: int, groups: int) -> int:
        watched, most, calls = Watched(), 0, 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        for at in range(2):
            watched.see(10.0 * at, large(topics, groups, at))
        assert watched.view is not None
        before = watched.view
        # A topic is new, one is gone, and one has no leader; the groups have read all of them.
        sample = large(topics + 1, groups, 2)
        _, second, *others = sample.topics.items()
        silent = TopicSample({0: PartitionSample(None, (1,), (1,))})
        shown = view_of(
            replace(sample, topics={second[0]: silent, **dict(others)}),
            None,
            None,
            watched.history,
            20.0,
            1020.0,
            has_zookeeper=False,
            last=before,
        )
        steps = watched.histories.add_in_steps(shown)
        is_done = False
        while not is_done:
            calls = 0
            sys.setprofile(count)
            try:
                is_done = next(steps, True) is True
            finally:
                sys.setprofile(None)
            most = max(most, calls)
            # Pages show the histories meanwhile.
            assert is_done or watched.histories.topics.keys() == before.topics.keys()
        return most

    assert longest(2000, 4) < 2 * longest(600, 1)


async def test_page_of_a_group_with_many_topics_begins_with_unknown_lag() -> None:
    console, watched = make_console({}, Admission(), title="c", interval_s=10), Watched()
    sample = large(200, 1, 1)
    silent = TopicSample({0: PartitionSample(None, (1,), (1,))})
    watched.see(0.0, replace(sample, topics={**sample.topics, "topic-00007": silent}))
    console._watch.view, console._watch.histories = watched.view, watched.histories
    async with client_of(console) as client:
        table = text_of((await client.get("/group?name=group-00")).text).split("Members")[0]
    assert table.index("topic-00007") < table.index("topic-00199")


async def test_page_of_a_group_with_many_topics_has_those_with_the_most_lag() -> None:
    console, watched = make_console({}, Admission(), title="c", interval_s=10), Watched()
    watched.see(0.0, large(200, 1, 1))
    console._watch.view, console._watch.histories = watched.view, watched.histories
    async with client_of(console) as client:
        page = await client.get("/group?name=group-00")
        text = text_of(page.text)
        assert "the 50 with an unknown lag or the most, of 200" in text
        assert page.text.count("</tr>") < 110
        shown = (await client.get("/group?name=group-00&format=json")).json()
        lags = (await client.get("/group?name=group-00&sort=-lag")).text
    assert len(shown["offsets"]) == 600
    assert shown["offsets"][-1]["topic"] == "topic-00199"
    assert "topic-00199" in text.split("Members")[0]
    assert "topic-00000" not in text.split("Members")[0]
    assert "topic-00199/0" in text_of(lags)
