"""The rows that are made of samples, hostile names of ZooKeeper included, and values over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from aiokafka08._tools.console.application import make_console
from aiokafka08._tools.console.charts import chart, sparkline
from aiokafka08._tools.console.cluster_view import (
    ClusterView,
    Histories,
    view_of,
)
from aiokafka08._tools.console.guard import Admission
from aiokafka08._tools.console.numbers import exact_text, number_text
from aiokafka08._tools.console.page_frame import PageFrame
from aiokafka08._tools.console.watch import ClusterWatch
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    GroupSample,
    PartitionSample,
    TopicSample,
)
from aiokafka08._tools.monitoring.point_history import PointHistory
from aiokafka08.admin.group_description import GroupDescription, MemberDescription
from aiokafka08.structs import TopicPartition
from tests.console.consoles import PAYLOADS, client_of, text_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def sample_of(*ends: int | None, **committed: int) -> ClusterSample:
    """Return a sample of the topic t; the groups have committed an offset of t/0."""
    partitions = {
        number: PartitionSample(1, (1, 2), (1,) if number else (1, 2), start=0, end=end)
        for number, end in enumerate(ends)
    }
    groups = [
        GroupSample(name, "kafka", (), {TopicPartition(*T0): at}) for name, at in committed.items()
    ]
    return ClusterSample({1: BrokerSample(1, "a:1")}, {"t": TopicSample(partitions)}, tuple(groups))


def views(*samples: tuple[float, ClusterSample]) -> list[ClusterView]:
    history, before = ClusterHistory(), None
    made: list[ClusterView] = []
    for at, sample in samples:
        history.add(at, sample)
        last = made[-1] if made else None
        made.append(
            view_of(
                sample, before, before, history, at, 1000.0 + at, has_zookeeper=False, last=last
            )
        )
        before = (at, sample)
    return made


def with_gap(sample: ClusterSample) -> ClusterSample:
    return replace(sample, errors=("groups in ZooKeeper not read",))


def histories_of(shown: Sequence[ClusterView]) -> Histories:
    histories = Histories()
    for view in shown:
        histories.add(view)
    return histories


def test_rates_are_of_the_time_between_samples() -> None:
    first, second, third = views(
        (0.0, sample_of(10, 5)), (10.0, sample_of(30, 15)), (20.0, sample_of(30, 2))
    )
    assert first.topics["t"].messages_per_s is None
    assert second.topics["t"].messages_per_s == second.messages_per_s == 3.0
    assert third.messages_per_s == 0.0  # a log that was cut isn't a negative rate


def test_unknown_ends_are_unknown_not_zero() -> None:
    [view] = views((0.0, sample_of(10, None, g=4)))
    row = view.topics["t"]
    assert (row.messages, row.under_replicated, row.groups) == (None, 1, 1)
    group = view.groups["g", "kafka"]
    assert (group.lag, group.unknown, group.lag_s) == (6, 1, None)


def test_isr_that_may_be_stale_makes_counts_unknown() -> None:
    partitions = {
        0: PartitionSample(1, (1, 2), (1,), perhaps_in_sync=(2,)),
        1: PartitionSample(1, (1, 3), (1,)),
    }
    brokers = [BrokerSample(node_id, f"kafka{node_id}:9092") for node_id in (1, 2, 3)]
    sample = ClusterSample({one.node_id: one for one in brokers}, {"t": TopicSample(partitions)})
    [view] = views((0.0, sample))
    assert view.topics["t"].under_replicated is None
    assert [one["out_of_sync"] for one in view.brokers(brokers)] == [0, None, 1]


def test_small_graph_has_sixty_intervals() -> None:
    frame = PageFrame(ClusterWatch({}, 3600.0), "", lambda text: text)
    history = PointHistory(60)
    for hour in range(3):
        history.add(3600.0 * hour, hour % 2)
    module = frame.templates.get_template("_macros.html").module
    assert "polyline" in module.spark(history, "")  # type: ignore[attr-defined]


def test_lag_in_seconds_grows_until_the_group_commits() -> None:
    *_, last = views(
        (0.0, sample_of(10, 0, g=10)),
        (10.0, sample_of(20, 0, g=10)),
        (20.0, sample_of(20, 0, g=10)),
    )
    assert last.groups["g", "kafka"].lag_s == pytest.approx(19.0)
    assert not last.groups["g", "kafka"].lag_s_is_least
    *_, old = views((0.0, sample_of(10, 0, g=2)), (30.0, sample_of(10, 0, g=2)))
    assert (old.groups["g", "kafka"].lag_s, old.groups["g", "kafka"].lag_s_is_least) == (30.0, True)


def test_histories_forget_what_is_gone() -> None:
    histories = Histories()
    first, second = views((0.0, sample_of(10, 0, a=1, b=2)), (10.0, sample_of(30, 0, b=2)))
    histories.add(first)
    assert set(histories.groups) == {("a", "kafka"), ("b", "kafka")}
    histories.add(second)
    assert histories.groups["b", "kafka"].points() == [(1000.0, 8), (1010.0, 28)]
    assert set(histories.groups) == {("b", "kafka")}
    assert {key: set(one) for key, one in histories.group_topics.items()} == {B: {"t"}}
    assert histories.groups["b", "kafka"].slope(1010.0, 300) == 2.0


B = ("b", "kafka")


def test_groups_that_a_gap_hides_stay_for_an_hour_with_their_age() -> None:
    whole, lacking = sample_of(10, 0, a=1, b=2), with_gap(sample_of(10, 0, a=1))
    shown = views((0.0, whole), (10.0, lacking), (20.0, lacking), (30.0, whole))
    assert [view.groups[B].read_at for view in shown] == [None, 1000.0, 1000.0, None]
    assert [view.groups[B].lag for view in shown] == [8, 8, 8, 8]
    assert [view.topics["t"].groups for view in shown] == [2, 2, 2, 2]
    histories = histories_of(shown)
    assert histories.groups[B].points() == [(1000.0, 8), (1030.0, 8)]
    assert histories.group_topics[B]["t"].points() == [(1000.0, 8), (1030.0, 8)]
    *_, old = shown = views((0.0, whole), (3599.0, lacking), (3600.0, lacking))
    assert B in shown[1].groups
    assert B not in old.groups
    assert set(histories_of(shown).groups) == {("a", "kafka")}
    *_, gone = shown = views((0.0, whole), (10.0, lacking), (20.0, sample_of(10, 0, a=1)))
    assert set(gone.groups) == set(histories_of(shown).groups) == {("a", "kafka")}


def test_topics_that_a_gap_hides_keep_their_points() -> None:
    whole = sample_of(10, 10)
    none = replace(whole, topics={})
    shown = views((0.0, whole), (10.0, whole), (20.0, with_gap(none)), (30.0, whole))
    histories = histories_of(shown)
    assert histories.topics["t"].points() == [(1010.0, 0.0)]
    assert histories.produced.points() == [(1010.0, 0.0)]
    assert not histories_of(views((0.0, whole), (10.0, whole), (20.0, none))).topics


def two_of(first: int | None, second: int | None) -> ClusterSample:
    """Return a sample where the group b has committed 0 of t/0 and t/1, which end there."""
    sample = sample_of(first, second)
    return replace(sample, groups=(GroupSample("b", "kafka", (), {T0: 0, T1: 0}),))


def test_lag_that_lacks_a_partition_is_no_point() -> None:
    """Else the group would seem to catch up as soon as a leader is gone."""
    shown = views(
        (0.0, two_of(100, 900)), (10.0, two_of(110, None)), (20.0, two_of(120, None)),
        (30.0, two_of(130, 910)),
    )  # fmt: skip
    assert [(view.groups[B].lag, view.groups[B].unknown) for view in shown] == [
        (1000, 0), (110, 1), (120, 1), (1040, 0),
    ]  # fmt: skip
    for count, slope in ((1, None), (2, None), (3, None), (4, 40 / 30)):
        histories = histories_of(shown[:count])
        assert histories.lag_per_s(B, shown[count - 1].taken_at, 300.0) == slope
    expected = [(1000.0, 1000), (1030.0, 1040)]
    assert histories.groups[B].points() == histories.group_topics[B]["t"].points() == expected


def test_speed_of_lag_goes_on_when_a_partition_without_commits_is_new() -> None:
    shown = views(
        (0.0, sample_of(110, b=10)), (10.0, sample_of(110, b=20)), (20.0, sample_of(110, 5, b=30))
    )
    assert [len(view.lags[B]) for view in shown] == [1, 1, 2]
    assert histories_of(shown).lag_per_s(B, 1020.0, 300.0) == -1.0


def test_speed_of_lag_is_that_of_the_same_partitions() -> None:
    """A partition that comes back, or for an hour doesn't, isn't messages."""
    shown = views((0.0, two_of(100, None)), (10.0, two_of(100, 900)), (20.0, two_of(100, 890)))
    assert histories_of(shown[:2]).lag_per_s(B, 1010.0, 300.0) is None
    assert histories_of(shown).lag_per_s(B, 1020.0, 300.0) == -1.0
    shown = views((0.0, two_of(100, 900)), (3600.0, two_of(100, None)), (3610.0, two_of(90, None)))
    histories = histories_of(shown)
    assert histories.groups[B].points()[-2:] == [(4600.0, 100), (4610.0, 90)]
    assert histories.lag_per_s(B, 4610.0, 5000.0) == -1.0


def test_lag_of_offsets_that_are_gone_is_a_point() -> None:
    one = replace(two_of(100, 900), groups=(GroupSample("b", "kafka", (), {T0: 0}),))
    shown = views((0.0, two_of(100, 900)), (10.0, one))
    assert histories_of(shown).groups[B].points() == [(1000.0, 1000), (1010.0, 100)]
    hidden = histories_of(views((0.0, two_of(100, 900)), (10.0, with_gap(one))))
    assert hidden.groups[B].points() == [(1000.0, 1000)]


def test_rate_that_lacks_a_partition_is_unknown_then_a_least_one() -> None:
    shown = views(
        (0.0, sample_of(10, 10)),
        (10.0, sample_of(20, 20)),
        (20.0, sample_of(30, None)),
        (30.0, sample_of(40, None)),
        (40.0, sample_of(50, 90)),
        (50.0, sample_of(60, 100)),
    )
    rates = [(None, 2), (2.0, 0), (None, 1), (1.0, 1), (1.0, 1), (2.0, 0)]
    assert [(row.topics["t"].messages_per_s, row.topics["t"].rate_lacks) for row in shown] == rates
    assert [(view.messages_per_s, view.rate_lacks) for view in shown] == rates
    times = [at for at, _ in histories_of(shown).topics["t"].points()]
    assert times == [1010.0, 1030.0, 1040.0, 1050.0]


@pytest.mark.parametrize(
    ("interval_s", "trigger"),
    [(1, "1000ms"), (2.5, "2500ms"), (3600, "3600000ms"), (1e7, "2147483647ms")],
)
async def test_page_asks_for_new_data_each_interval(interval_s: float, trigger: str) -> None:
    """htmx reads "3,600s" as 3 ms."""
    console = make_console({}, Admission(), title="c", interval_s=interval_s)
    watch = console._watch
    sample = sample_of(1, 1)
    for age_s, is_stale in ((0, False), (2.9 * interval_s, False), (3.1 * interval_s, True)):
        [watch.view] = views((time.time() - 1000.0 - age_s, sample))
        watch.histories = histories_of([watch.view])
        async with client_of(console) as client:
            page = (await client.get("/topics")).text
        assert f'hx-trigger="every {trigger}"' in page
        assert (' class="bad">' in page.split('id="age"')[1][:150]) == is_stale


async def test_pages_mark_what_is_partial_and_tell_when_a_group_is_caught_up() -> None:
    console = make_console({}, Admission(), title="c", interval_s=10)
    watch = console._watch
    async with client_of(console) as client:
        shown = views((0.0, two_of(100, 900)), (10.0, two_of(100, 800)), (20.0, two_of(100, 700)))
        watch.view, watch.histories = shown[-1], histories_of(shown)
        page = (await client.get("/group?name=b&format=json")).json()
        assert (page["lag"], page["lag_per_s"], page["caught_up_s"]) == (800, -10.0, 80.0)
        assert "1 min 20 s" in text_of((await client.get("/group?name=b")).text)
        shown += views(
            (20.0, two_of(100, 700)), (30.0, two_of(100, None)), (40.0, two_of(100, None))
        )[1:]
        watch.view, watch.histories = shown[-1], histories_of(shown)
        page = (await client.get("/group?name=b&format=json")).json()
        assert (page["lag"], page["unknown"], page["caught_up_s"]) == (100, 1, None)
        assert "≥ 0/s" in text_of((await client.get("/")).text)
        assert "≥ 0/s" in text_of((await client.get("/topics")).text)
        assert "+ 1 unknown" in text_of((await client.get("/topics/t")).text)
        [reader] = (await client.get("/topics/t?format=json")).json()["groups"]
        assert reader["lag_s_is_least"]
        waiting = text_of((await client.get("/topics/t")).text).split("Waiting")[1]
        assert "≥ 20 s" in waiting
        hidden = with_gap(replace(shown[-1].sample, groups=()))
        [_, watch.view] = views((0.0, two_of(100, 900)), (10.0, hidden))
        for path in ("/groups", "/topics/t"):
            assert "as of " in text_of((await client.get(path)).text)
        assert "couldn't be read now" in text_of((await client.get("/group?name=b")).text)


async def test_what_an_old_sample_lacks_may_be_there() -> None:
    console = make_console({}, Admission(), title="c", interval_s=10)
    [console._watch.view] = views((time.time() - 1000.0 - 31, sample_of(1, 1)))
    async with client_of(console) as client:
        for path in ("/topics/new", "/group?name=new"):
            page = await client.get(path)
            assert (page.status_code, "is 31 s old" in page.text) == (503, True)


def test_points_are_bounded_and_sparse_with_age() -> None:
    history = PointHistory(10, 60)
    for second in range(0, 7200, 5):
        history.add(float(second), second)
    points = history.points()
    assert len(points) <= 70
    assert points == sorted(points)
    assert points[-10:] == [(float(second), second) for second in range(7150, 7200, 5)]
    assert points[0][0] >= 7200 - 61 * 60
    assert history.points(10) == [(7185.0, 7185), (7190.0, 7190), (7195.0, 7195)]
    assert history.last == 7195
    assert history.slope(7195.0, 20) == 1.0


def test_unchanged_parts_of_samples_are_kept_once() -> None:
    first = sample_of(10, 5, a=1, b=2).sharing(ClusterSample({}, {}))
    second = sample_of(10, 5, a=1, b=3).sharing(first)
    assert second == sample_of(10, 5, a=1, b=3)
    assert second.topics["t"] is first.topics["t"]
    assert second.groups[0].committed is first.groups[0].committed
    keys = [key for one in (*first.groups, *second.groups) for key in one.committed]
    assert len(keys) == 4
    assert len({id(key) for key in keys}) == 1
    old, new = views((0.0, first), (10.0, second))
    tables = [*old.lags.values(), *new.lags.values()]
    assert len({id(one.known.tps) for one in tables}) == 1
    [one, _] = new.lags["a", "kafka"]
    assert (one.lag, one.lag_s) == (9, 10.0)


def test_a_value_that_stays_takes_two_points() -> None:
    history, moving = PointHistory(360, 1440), PointHistory(360, 1440)
    for second in range(0, 200_000, 10):
        history.add(float(second), 7.0 if second < 199_900 else 17.0)
        moving.add(float(second), float(second))
    assert history.points(200) == [
        (199_790.0, 7.0),
        (199_890.0, 7.0),
        (199_900.0, 17.0),
        (199_990.0, 17.0),
    ]
    assert history.points()[0] == (199_990.0 - 86_400, 7.0)
    assert history.slope(199_990.0, 200) == 0.05
    kept = moving.points()
    assert len(kept) <= 1800
    assert max(after[0] - one[0] for one, after in pairwise(kept)) <= 60


async def test_hostile_names_of_zookeeper_and_members_are_escaped() -> None:
    payload = PAYLOADS[0]
    member = MemberDescription(payload, payload, payload, b"", b"")
    for hostile in PAYLOADS:
        sample = ClusterSample(
            {1: BrokerSample(1, hostile, error=hostile)},
            {
                "t": TopicSample(
                    {0: PartitionSample(1, (1,), (1,), start=0, end=9)}, {hostile: hostile}
                )
            },
            (
                GroupSample(
                    hostile,
                    "zookeeper",
                    (hostile,),
                    {T0: 1},
                    GroupDescription(0, hostile, hostile, "consumer", "", [member]),
                ),
            ),
            errors=(hostile,),
            hints=(hostile,),
        )
        console = make_console(
            {}, Admission(), title=hostile, interval_s=10, reword=lambda text: text + payload
        )
        watch = console._watch
        [watch.view] = views((0.0, sample))
        watch.histories.add(watch.view)
        async with client_of(console) as client:
            for path in ("/", "/topics", "/topics/t", "/groups"):
                page = await client.get(path)
                assert page.status_code == 200
                assert payload in text_of(page.text)
            page = await client.get("/group", params={"name": hostile})
            assert page.status_code == 200
            text_of(page.text)


def test_charts_have_numbers_and_escaped_text_only() -> None:
    points = [(1000.0 + 10 * number, float(number)) for number in range(2000)]
    drawn = chart(points, PAYLOADS[1], PAYLOADS[0])
    assert "<script" not in drawn
    assert "<img" not in drawn
    assert drawn.count("<title>") == 60
    assert len(drawn) < 40_000
    assert chart(points[:1], "", "") == chart([], "", "") == sparkline([(1.0, 1.0)], "") == ""
    assert "<img" not in sparkline([(1.0, 1.0), (2.0, 2.0)], PAYLOADS[1])


@pytest.mark.parametrize(
    ("value", "short", "exact"),
    [
        (None, "–", "unknown"),
        (0, "0", "0"),
        (9994, "9,994", "9,994"),
        (12_345, "12.3 k", "12,345"),
        (1_234_567, "1.23 M", "1,234,567"),
        (9998, "10 k", "9,998"),
        (999_499, "999 k", "999,499"),
        (999_999, "1 M", "999,999"),
        (10**15, "1,000,000,000,000,000", "1,000,000,000,000,000"),
        (0.25, "0.25", "0.25"),
        (53.66, "53.7", "53.66"),
        (7e12, "7 T", "7,000,000,000,000"),
    ],
)
def test_numbers_are_short_and_exact(value: float | None, short: str, exact: str) -> None:
    assert (number_text(value), exact_text(value)) == (short, exact)


def test_preferred_leader_is_unknown_where_brokers_sort_replicas() -> None:
    """Brokers of 0.10 list replicas by id, others as they are assigned."""

    def preferred(*replicas: tuple[int, ...]) -> list[bool | None]:
        partitions = {at: PartitionSample(1, one, one) for at, one in enumerate(replicas)}
        sample = ClusterSample({1: BrokerSample(1, "a:1")}, {"t": TopicSample(partitions)}, ())
        [view] = views((0.0, sample))
        return [row["preferred"] for row in view.partitions("t")]

    assert preferred((1, 2), (1, 3)) == [None, None]
    assert preferred((1, 2), (2, 1)) == [True, False]
