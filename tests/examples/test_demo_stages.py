"""The stages of the demo: verification, input, tally, Spark's counts and progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from aiokafka08.testing import EmbeddedCluster
from examples.demo.aggregate import compare, reason
from examples.demo.ingest import ingest
from examples.demo.input import AT_LEAST, Input, Module, read_module, source_files
from examples.demo.progress import Meter
from examples.demo.run import DemoError, Run, on_loop
from examples.demo.tally import Findings, Package, Tally, add_up, count_packages, largest
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
        (lose, "key 'os': 4 messages were sent, 3 read"),
        (repeat, "key 'os': 4 messages were sent, 5 read"),
        (swap, "key 'os.path': 2 messages were sent and read, but with other values or in another"),
        (change, "key 'os.path': 2 messages were sent and read, but with other values"),
        (remove_value, "key 'os.path': 1 messages have no value"),
        (add_another, "key 'sys': 0 messages were sent, 1 read"),
        (add_without_key, "without a key: 0 messages were sent, 1 read"),
    ],
)
def test_verification_names_the_damaged_key(
    damage: Callable[[EmbeddedCluster], None], expected: str, cluster: EmbeddedCluster, run: Run
) -> None:
    ingest(run)
    damage(cluster)
    with pytest.raises(DemoError, match=re.escape(expected)) as raised:
        verify(run)
    assert "; " not in str(raised.value)  # no other key


def test_verification_names_five_keys_and_counts_the_rest(run: Run) -> None:
    modules = [Module(b"m%d" % number, [b"x"]) for number in range(9)]
    run.input = Input(modules, 9)
    with pytest.raises(DemoError, match=r"'m4': .*; and 4 more keys$"):
        verify(run)


def test_sent_messages_are_verified_and_counted(run: Run) -> None:
    assert [speed.messages for speed in (*ingest(run), *verify(run))] == [6, 6]
    assert "6 messages of 2 keys were read" in said(run)
    assert run.findings.modules == {"os": 4, "os.path": 2}
    assert run.findings.lengths == {10: 2, 0: 2, 11: 1, 12: 1}
    assert run.findings.packages() == {"os": (2, 6)}


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

LINES = st.binary(max_size=3).filter(lambda line: b"\n" not in line)
KEYS = st.sampled_from([b"a", b"b"])


@given(
    st.lists(st.tuples(KEYS, LINES), max_size=6),
    st.lists(st.tuples(KEYS | st.none(), LINES | st.just(b"\n") | st.none()), max_size=6),
)
def test_tallies_agree_only_for_equal_sequences_by_key(
    sent: list[tuple[bytes, bytes]], read: list[tuple[bytes | None, bytes | None]]
) -> None:
    first = tally_of(sent)
    for messages in (read, list(reversed(sent))):
        differing = [
            key
            for key in {key for key, _ in [*sent, *messages]}
            if [value for one, value in sent if one == key]
            != [value for one, value in messages if one == key]
        ]
        assert len(first.differences(tally_of(messages))) == len(differing)


def tally_of(messages: Sequence[tuple[bytes | None, bytes | None]]) -> Tally:
    tally = Tally()
    for key, value in messages:
        tally.add(key, [value])
    return tally


def test_tally_is_independent_of_the_bundles() -> None:
    together, apart = Tally(), Tally()
    together.add(b"k", [b"a", b"", b"c"])
    apart.add(b"k", [b"a"])
    apart.add(b"k", [])
    apart.add(b"k", [b"", b"c"])
    assert together.differences(apart) == []
    assert together.messages == apart.messages == 3
    assert together.size_bytes == apart.size_bytes == 5


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
    assert found.sent.messages == found.messages == 13
    findings = Findings()
    for key, lines in found.parts():
        findings.add(key, lines)
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
    console = Console(file=StringIO(), force_terminal=terminal, width=100, color_system=None)
    with Meter(console, "ingest", 2000, "messages") as meter:
        meter.advance(1500)
        meter.advance(500)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    if terminal:
        assert "100%" in text
    else:
        assert re.fullmatch(r"ingest: 2,000 of 2,000 messages, [\d,]+/s\n", text)
