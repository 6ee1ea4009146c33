"""The stages of the demo: verification, input, picture, Spark's counts and progress."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from aiokafka08.testing import EmbeddedCluster
from examples.demo.aggregate import compare, reason
from examples.demo.cluster import embedded
from examples.demo.ingest import FAILOVER, INGEST, ingest
from examples.demo.input import AT_LEAST, Input, Module, read_module, source_files
from examples.demo.partition_check import PartitionCheck
from examples.demo.progress import Meter
from examples.demo.report import print_report
from examples.demo.run import DemoError, Killed, Run, Speed, on_loop
from examples.demo.tally import Findings, Package, add_up, count_packages, largest
from examples.demo.timeline import Timeline, percentile
from examples.demo.topic import prepare
from examples.demo.verify import verify

# --- the stages -----------------------------------------------------------------------------------

MODULES = [
    Module(b"os", [b"import abc", b"", b"", b"import sys"]),
    Module(b"os.path", [b"def join():", b"    return 1"]),
    Module(b"empty", []),
]
TOPIC = "lines"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={TOPIC: 1}) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: EmbeddedCluster) -> Run:
    console = Console(file=StringIO(), soft_wrap=True)
    return Run(cluster.bootstrap_servers, TOPIC, None, Input(MODULES, 6), console)


def said(run: Run) -> str:
    assert isinstance(run.console.file, StringIO)
    return run.console.file.getvalue()


def lose(cluster: EmbeddedCluster) -> None:
    cluster.remove(TOPIC, 0, [0])


def repeat(cluster: EmbeddedCluster) -> None:
    cluster.append(TOPIC, 0, [b"import abc"], [b"os"])


def swap(cluster: EmbeddedCluster) -> None:
    first, second = cluster.log(TOPIC, 0)[-2:]
    cluster.truncate(TOPIC, 0, first.offset)
    cluster.append(TOPIC, 0, [second.value, first.value], [second.key, first.key])


def change(cluster: EmbeddedCluster) -> None:
    last = cluster.log(TOPIC, 0)[-1]
    cluster.truncate(TOPIC, 0, last.offset)
    cluster.append(TOPIC, 0, [b"    return 2"], [last.key])


def remove_value(cluster: EmbeddedCluster) -> None:
    last = cluster.log(TOPIC, 0)[-1]
    cluster.truncate(TOPIC, 0, last.offset)
    cluster.append(TOPIC, 0, [None], [last.key])


def add_another(cluster: EmbeddedCluster) -> None:
    cluster.append(TOPIC, 0, [b"x"], [b"sys"])


def add_without_key(cluster: EmbeddedCluster) -> None:
    cluster.append(TOPIC, 0, [b"x"])


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lose, "topic 'lines', partition 0: 1 lost, the first at 0"),
        (
            swap,
            "offset 4: read key b'os.path' value b'    return 1', sent key b'os.path' value b'd",
        ),
        (change, "offset 5: read key b'os.path' value b'    return 2', sent key b'os.path' value"),
        (remove_value, "offset 5: read key b'os.path' value None, sent key b'os.path'"),
        (add_another, "topic 'lines', partition 0: 1 read that were not sent"),
        (add_without_key, "topic 'lines', partition 0: 1 read that were not sent"),
    ],
)
def test_verification_names_the_damaged_offset(
    damage: Callable[[EmbeddedCluster], None], expected: str, cluster: EmbeddedCluster, run: Run
) -> None:
    ingest(run)
    damage(cluster)
    with pytest.raises(DemoError, match=re.escape(expected)):
        verify(run)


def test_message_stored_twice_is_counted_as_repeated(cluster: EmbeddedCluster, run: Run) -> None:
    ingest(run)
    repeat(cluster)
    assert [speed.messages for speed in verify(run)] == [7]
    assert "7 messages of 2 modules were read: 0 lost, 1 repeated, 0 reordered" in said(run)
    assert run.repeated == [(b"os", b"import abc")]


def test_verification_names_five_offsets_and_counts_the_rest(
    cluster: EmbeddedCluster, run: Run
) -> None:
    run.input = Input([Module(b"m", [b"%d" % number for number in range(9)])], 9)
    ingest(run)
    cluster.truncate(TOPIC, 0, 0)
    cluster.append(TOPIC, 0, [b"other"] * 9, [b"m"] * 9)
    with pytest.raises(DemoError, match=r"offset 4: .*; and 4 more differences$"):
        verify(run)


def test_sent_messages_are_verified_and_counted(run: Run) -> None:
    assert [speed.messages for speed in (*ingest(run), *verify(run))] == [6, 6]
    assert "6 messages of 2 modules were read: 0 lost, 0 repeated, 0 reordered" in said(run)
    assert run.findings.modules == {"os": 4, "os.path": 2}
    assert run.findings.packages() == {"os": (2, 6)}


@pytest.mark.parametrize("version", ["0.8.0", "0.10"])
def test_leader_killed_while_sending_loses_nothing(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the lists are sent before; the kill comes soon after, to within one list of 300."""
    monkeypatch.setattr("examples.demo.ingest.ONE_AT_A_TIME_S", 60.0)
    modules = [Module(b"m%d" % number, [b"x" * 50] * 300) for number in range(40)]
    acknowledged = []

    def kill_leader() -> Killed:
        acknowledged.append(sum(len(part.values) for part in run.sent))
        return process.kill_leader(TOPIC)

    with embedded(3, version, {TOPIC: 4}) as process:
        run = Run(
            process.bootstrap,
            TOPIC,
            None,
            Input(modules, 12_000),
            Console(file=StringIO(), soft_wrap=True),
            kill_leader=kill_leader,
        )
        ingested = ingest(run)
        verify(run)
    assert [speed.stage for speed in ingested] == ["one at a time", INGEST, FAILOVER]
    assert [speed.messages for speed in ingested] == [1200, 5400, 5400]
    assert len(run.latencies_ms) == 1200
    assert 7140 <= acknowledged[0] < 7440
    assert run.killed is not None
    assert 1 <= run.killed.led < run.killed.partitions == 4
    assert re.search("0 lost, .* repeated, 0 reordered", said(run))
    assert run.timeline.acknowledged[-1] == 10_800
    assert run.timeline.longest_pause_s() > 0


def test_missing_or_filled_topic_is_refused(cluster: EmbeddedCluster) -> None:
    assert on_loop(prepare(cluster.bootstrap_servers, TOPIC)) == 1
    cluster.append(TOPIC, 0, [b"x"])
    with pytest.raises(DemoError, match="'lines' has 1 messages; expected an empty"):
        on_loop(prepare(cluster.bootstrap_servers, TOPIC))
    with EmbeddedCluster(auto_create=False) as strict:
        servers = strict.bootstrap_servers
        with pytest.raises(DemoError, match=rf"{servers} don't create topic 'x' .* --topic"):
            on_loop(prepare(servers, "x", patience_ms=300))


# --- pure -----------------------------------------------------------------------------------------

MESSAGES = st.tuples(st.sampled_from([b"a", b"b"]), st.binary(max_size=1))


@given(st.lists(MESSAGES, max_size=6), st.data())
def test_check_accepts_exactly_retried_messages(
    sent: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    """Before any message, copies of sent ones may stand: attempts without a response."""
    log: list[tuple[bytes, bytes]] = []
    check = PartitionCheck("t", 0)
    copies = 0
    for key, value in sent:
        found = data.draw(st.lists(st.sampled_from(sent), max_size=2))
        log += found
        copies += len(found)
        check.add(key, [value], [len(log)])
        log.append((key, value))
    damaged = data.draw(st.lists(st.sampled_from(range(len(log))), max_size=1)) if log else []
    for offset, (key, value) in enumerate(log):
        if offset not in damaged:
            check.read([offset], [key], [value])
    differences = check.end()
    acknowledged = {offset for offset in damaged if offset in check._offsets}
    assert bool(differences) == bool(acknowledged)
    assert len(check.repeated) == copies - len(set(damaged) - acknowledged)


def test_descending_offsets_are_reordered() -> None:
    check = PartitionCheck("t", 3)
    check.add(b"k", [b"1", b"2"], [5, 6])
    check.add(b"k", [b"3"], [4])
    assert "topic 't', partition 3: 1 reordered" in check.end()


def test_timeline_has_rates_and_the_longest_pause() -> None:
    timeline = Timeline()
    assert timeline.rates(10) == ([], [])
    for seconds, count in [(0.0, 0), (1.0, 100), (2.0, 100), (3.5, 100), (4.0, 300)]:
        timeline.add(seconds, count)
    assert timeline.rates(4) == ([1.0, 2.0, 3.0, 4.0], [100.0, 0.0, 0.0, 200.0])
    assert timeline.longest_pause_s() == 2.5


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 50), (95, 95), (99, 99), (100, 100), (0, 1)]
)
def test_percentile_is_the_smallest_value_above(percent: int, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected
    assert percentile([7.0], percent) == 7


# --- the picture ----------------------------------------------------------------------------------


def drawn(spark: bool, killed: bool, fast: float) -> Run:
    from examples.demo.aggregate import IN_SPARK, START_SPARK
    from examples.demo.verify import VERIFY

    run = Run("", TOPIC, "snappy", Input(MODULES, 6), Console(file=StringIO()))
    run.findings.add({b"os": 1_712_345})
    for step in range(100):
        run.timeline.add(step * 0.02, int(step * fast / 50))
    run.latencies_ms = [fast / 1e5] * 2000
    if killed:
        run.timeline.killed_s = 1.97
        run.killed = Killed(12, 13, 40)
        run.repeated = [(b"os", b"x")] * 12_345
    run.speeds.append(Speed("one at a time", 9, 9, 1.0))
    stages = [INGEST, *([FAILOVER] if killed else []), VERIFY]
    run.speeds += [Speed(stage, int(fast), int(100 * fast), 1) for stage in stages]
    if spark:
        run.speeds += [Speed(START_SPARK, 0, 0, 12.3), Speed(IN_SPARK, int(fast), 10**8, 100)]
        run.packages = {
            f"a_package_of_a_long_name_{number}": Package(100, 1000, number * 12)
            for number in range(9)
        }
    return run


@pytest.mark.parametrize("fast", [900.0, 9_876_543.0])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("spark", [False, True])
def test_no_label_of_the_picture_overlaps_or_is_cut_off(
    spark: bool, killed: bool, fast: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    from examples.demo.picture import figure

    boxes: dict[str, Any] = {}
    draw = Text.draw

    def record(text: Text, renderer: Any, *arguments: Any, **options: Any) -> None:
        box = text.get_window_extent(renderer)
        if text.get_text().strip() and text.get_visible():
            boxes[f"{text.get_text()!r} at {box.x0:.0f}, {box.y0:.0f}"] = box
        draw(text, renderer, *arguments, **options)

    monkeypatch.setattr(Text, "draw", record)  # some labels exist, but aren't drawn
    where = "kafka-broker-with-a-long-name-1.example.org:9092,kafka-broker-with-a-long-name-2:9092"
    picture = figure(drawn(spark, killed, fast), where)
    canvas = FigureCanvasAgg(picture)
    canvas.draw()
    assert len(boxes) > 20
    width, height = canvas.get_width_height()
    for name, box in boxes.items():
        assert 0 <= box.x0 < box.x1 <= width, f"cut off: {name}"
        assert 0 <= box.y0 < box.y1 <= height, f"cut off: {name}"
    for (name, box), (other, other_box) in itertools.combinations(boxes.items(), 2):
        assert not box.overlaps(other_box), f"{name} overlaps {other}"


def test_picture_and_table_write_a_share_alike() -> None:
    from matplotlib.text import Text

    from examples.demo.picture import figure

    run = drawn(True, True, 900.0)
    print_report(run)
    assert isinstance(run.console.file, StringIO)
    printed = run.console.file.getvalue()
    labels = "\n".join(text.get_text() for text in figure(run, "").findobj(Text))
    shares = set(re.findall(r"[\d.]+ %", labels))
    assert {"12.0 %", "48.0 %"} <= shares  # of a package, and of all
    assert shares <= set(re.findall(r"[\d.]+ %", printed))
    assert not re.search(r"\d%", labels + printed)


def test_too_few_lines_are_sent_again_with_the_round_in_the_key() -> None:
    found = Input(MODULES, 13)
    assert found.rounds == 3
    assert [(key, len(lines)) for key, lines in found.parts()] == [
        (b"os", 4),
        (b"os.path", 2),
        (b"os@2", 4),
        (b"os.path@2", 2),
        (b"os@3", 1),
    ]
    assert sum(len(lines) for _, lines in found.parts()) == found.messages == 13
    findings = Findings()
    for key, lines in found.parts():
        findings.add({key: len(lines)})
    assert findings.modules == {"os": 9, "os.path": 4}


def test_default_is_every_line_and_at_least_a_minimum() -> None:
    assert Input([Module(b"m", [b""] * (AT_LEAST + 1))]).messages == AT_LEAST + 1
    assert Input([Module(b"m", [b""] * 300_000)]).messages == AT_LEAST
    with pytest.raises(ValueError, match="no lines"):
        Input([Module(b"m", [])])


def test_modules_are_found_and_named(tmp_path: Path) -> None:
    for path, text in {
        "abc.py": b"one\n\ntwo",
        "json/__init__.py": b"\xff\r\n",
        "json/tool.py": b"",
        "json/data.txt": b"x",
        "site-packages/other.py": b"x",
        "json/__pycache__/tool.py": b"x",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text)
    assert [read_module(tmp_path, path) for path in source_files(tmp_path)] == [
        Module(b"abc", [b"one", b"", b"two"]),
        Module(b"json", [b"\xff\r"]),
        Module(b"json.tool", []),
    ]


def test_packages_are_counted_from_their_lines() -> None:
    modules = [
        Module(b"os", [b"# one", b" \t# two", b"x = 1  # no"]),
        Module(b"os.path", [b"", b"\xff#"]),
        Module(b"json", [b"#"]),
    ]
    counted = count_packages(Input(modules, 7).parts())
    assert counted == {"os": Package(6, 30, 3), "json": Package(1, 1, 1)}
    assert counted["os"].mean_length == 5
    assert counted["os"].comment_share == 0.5
    assert add_up(counted.values()) == Package(7, 31, 4)
    assert list(largest(counted, 1)) == ["os"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"os": Package(6, 30, 2)}, "package 'os': .*comments=2.* expected .*comments=3"),
        ({}, "package 'os': None; expected Package"),
        ({"os": Package(6, 30, 3), "sys": Package(1, 0, 0)}, "'sys': Package.* expected None$"),
        ({f"m{n}": Package(1, 0, 0) for n in range(7)}, "'m4': .*; and 3 more packages$"),
    ],
)
def test_wrong_counts_of_spark_are_named(found: dict[str, Package], expected: str) -> None:
    sent = {"os": Package(6, 30, 3)}
    compare(sent, sent, TOPIC)
    with pytest.raises(DemoError, match=expected):
        compare(found, sent, TOPIC)


@pytest.mark.parametrize(
    ("error", "log", "expected"),
    [
        ("", "", "the process ended"),
        ("", "1\n2\n3\n4\nKilled\n", "the process ended; its last lines: 2; 3; 4; Killed"),
        (
            "PySparkRuntimeError: [JAVA_GATEWAY_EXITED] …",
            "a\nb",
            "the process ended; its last lines: a; b",
        ),
        ("ValueError: no", "x", "ValueError: no"),
        (
            "AnalysisException: [X] Failed: Traceback (most recent call last):\n  File …\n"
            "KafkaError: broker 1\n SQLSTATE: 38000\n\nJVM stacktrace:\njava.lang.Error\n\tat x",
            "",
            "KafkaError: broker 1",
        ),
    ],
)
def test_failure_of_spark_is_reduced_to_its_reason(error: str, log: str, expected: str) -> None:
    assert reason(error, log) == expected


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_else_a_line(terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, width=80, color_system=None)
    with Meter(console, "ingest", 2000) as meter:
        meter.advance(1500)
        meter.advance(500)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    if terminal:
        assert "100 %" in text
        assert f"{2000 / meter.seconds:,.0f}/s" in text.splitlines()[-2]
    else:
        assert re.fullmatch(r"ingest: 2,000 of 2,000 messages, [\d,]+/s\n", text)
