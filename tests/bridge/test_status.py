"""How far a copy is behind, and what the pages show of it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from aiokafka08._tools.cli.commands.bridge_run import serve_pages
from aiokafka08.bridge.config import read_config
from aiokafka08.bridge.copy.status import CopyStatus, PartitionStatus, RepeatedError
from aiokafka08.bridge.copy.status_pages import health_page, metrics_page
from aiokafka08.bridge.verify.sequence_check import CheckProgress, Difference
from aiokafka08.bridge.verify.verification import PartitionVerdict
from aiokafka08.bridge.verify.verify_state import VerifyState, last_verification, state_path
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import TopicPartition
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import Message, write
from tests.bridge.hand_copy import write_config
from tests.brokers import RealCluster
from tests.support.waiting import eventually, until
from tests.tools.bridge_rounds import BridgeProcess

TP = TopicPartition("orders", 0)


def test_lag_in_seconds_is_the_age_of_an_unreached_end() -> None:
    """Under a constant load the copy never reaches the end, but its lag doesn't grow."""
    status = PartitionStatus(0)
    for second in range(100):
        status.observe((second + 1) * 10, float(second))
        status.position = second * 10
        status.observe(None, float(second))
        assert status.lag_s(float(second)) <= 1.0
    assert status.lag == 10


def test_lag_grows_while_nothing_is_copied() -> None:
    status = PartitionStatus(0)
    for second in range(1000):
        status.observe((second + 1) * 10, float(second))
    assert status.lag_s(999.0) == 999.0
    assert len(status.ends) <= 501
    status.position = 10_000
    status.observe(10_000, 1000.0)
    assert (status.lag, status.lag_s(1000.0)) == (0, 0.0)


def test_stopped_partition_is_no_backlog() -> None:
    """Else no session would count as idle, and an outage that has ended would go on."""
    status = CopyStatus()
    status.partitions[TopicPartition("t", 0)] = PartitionStatus(3, end=9, stopped="refused")
    assert status.lag() == 0
    status.partitions[TopicPartition("t", 1)] = PartitionStatus(3, end=5)
    assert status.lag() == 2


def test_error_that_was_logged_stays_as_it_was() -> None:
    """A handler that writes later, such as a queue's, makes its text then."""
    status = CopyStatus()
    logged = status.note_error("groups", "away")
    status.note_error("groups", "still away")
    assert str(logged) == "away"


def test_repeated_error_says_how_often_and_since_when() -> None:
    status, error = CopyStatus(problem=None), RepeatedError()
    before = time.time()
    for text in ("first", "second"):
        error = error.again(text)
        assert before <= error.since <= time.time()
    first = error.since
    error = error.again("third")
    assert (error.since, error.count) == (first, 3)
    assert re.fullmatch(r"third \(3 times since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)", str(error))
    assert str(status.note_error("groups", "away")) == "away"
    assert health_page(status, 0.0).body == b"ok\n"  # once may pass
    status.note_error("groups", "away")
    assert health_page(status, 0.0).body.startswith(b"groups: away (2 times since ")
    status.note_success("groups")
    assert health_page(status, 0.0).body == b"ok\n"


@pytest.mark.parametrize("cluster", ["source", "target"])
def test_health_names_a_cluster_that_stays_away(cluster: str) -> None:
    """Also while no message waits."""
    status = CopyStatus(problem=None)
    status.note_away(cluster, "Connection refused")
    assert health_page(status, 0.0).body == b"ok\n"  # once may pass
    status.note_away(cluster, "Connection refused")
    page = health_page(status, 0.0)
    assert page.status == 503
    assert page.body.startswith(
        b"the %s is away: Connection refused (2 times since " % cluster.encode()
    )
    status.note_away(cluster, None)
    assert health_page(status, 0.0).body == b"ok\n"


def test_metrics_have_each_partition() -> None:
    status = CopyStatus({TP: PartitionStatus(7, 9)}, records=7, problem=None)
    text = metrics_page(status, 0.0).body.decode()
    assert 'aiokafka08_bridge_lag_messages{topic="orders",partition="0"} 2\n' in text
    assert "aiokafka08_bridge_messages_total 7\n" in text
    assert "aiokafka08_bridge_up 1\n" in text
    assert "verification" not in text


@pytest.mark.parametrize(
    "status",
    [
        CopyStatus(problem="the target is away"),
        CopyStatus({TP: PartitionStatus(7, stopped="the target is away")}, problem=None),
        CopyStatus(refused_topics={"t": "the target is away"}, problem=None),
    ],
)
def test_health_names_what_is_wrong(status: CopyStatus) -> None:
    page = health_page(status, 0.0)
    assert (page.status, page.body) == (503, b"the target is away\n")


def test_health_is_ok_while_the_copy_goes_on() -> None:
    assert health_page(CopyStatus(problem=None), 0.0).body == b"ok\n"


def test_health_is_bad_while_nothing_is_committed() -> None:
    """The target hangs: no request fails, but nothing arrives."""
    partition = PartitionStatus(0)
    partition.observe(10, 100.0)
    status = CopyStatus({TP: partition}, problem=None, committed_at=90.0)
    assert health_page(status, 129.0).status == 200
    assert b"none was committed for 40 s" in health_page(status, 140.0).body
    status.committed_at = 135.0
    assert health_page(status, 140.0).status == 200


def test_verification_that_was_interrupted_is_not_equal(tmp_path: Path) -> None:
    """Partitions that weren't reached may differ."""
    state = VerifyState(tmp_path / "state.json", "b", timestamps=False)
    state.note(PartitionVerdict("t", 0, "t", CheckProgress(7, 7, 7, 7), is_complete=True))
    state.save(now=5.0)
    found = last_verification(tmp_path / "state.json")
    assert found is not None
    assert not found.is_equal
    state.save(now=6.0, is_complete=True)
    found = last_verification(tmp_path / "state.json")
    assert found is not None
    assert (found.is_equal, found.at, found.count) == (True, 6.0, 7)


def test_progress_of_an_older_release_says_what_to_do(tmp_path: Path) -> None:
    """Its differences don't say how many messages in front of them are equal."""
    path = tmp_path / "state.json"
    state = VerifyState(path, "b", timestamps=False)
    progress = CheckProgress(7, 7, 7, 7, difference=Difference("lost", 5, 5, 5))
    state.note(PartitionVerdict("t", 0, "t", progress))
    state.save(now=5.0)
    document = json.loads(path.read_text())
    del document["partitions"][0]["progress"]["difference"][3]
    path.write_text(json.dumps(document))
    with pytest.raises(IllegalArgumentError) as raised:
        state.load()
    assert (
        "an older release may have written it. Start without --resume, which reads all again"
        in (raised.value.text)
    )


async def test_metrics_have_the_last_verification(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of one that ended while the bridge runs."""
    file = tmp_path / "b.toml"
    file.write_text(
        'name="x"\nlisten="127.0.0.1:0"\n[source]\nbootstrap="a:1"\n'
        '[target]\nbootstrap="b:1"\n[topics]\ninclude=["t"]\n'
    )
    with serve_pages(read_config(file), CopyStatus()):
        [url] = re.findall(r"http://[^\s/]+", capsys.readouterr().err)

        async def metrics() -> str:
            return await asyncio.to_thread(lambda: urlopen(f"{url}/metrics").read().decode())

        assert "verification" not in await metrics()
        state = VerifyState(state_path(file), "x", timestamps=False)
        state.note(PartitionVerdict("t", 0, "t", CheckProgress(7, 7, 7, 7), is_complete=True))
        state.save(now=5.0, is_complete=True)
        text = await metrics()
    assert "aiokafka08_bridge_verification_equal 1\n" in text
    assert "aiokafka08_bridge_verification_timestamp_seconds 5.0\n" in text


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_options_of_run_limit_it_and_serve_its_pages(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """`bridge status` has what the target has committed: before the copy, and after its end."""
    topic, count, rate = unique_topic("limited"), 40_000, 100_000
    source.create_topic(topic)
    await write(source, topic, {0: [Message(None, bytes(100))] * count})
    config = write_config(tmp_path, topic, source, target, [topic])
    process = BridgeProcess(config.path, "--rate", "100kB/s", "--listen", "127.0.0.1:0")

    async def status() -> dict[str, object]:
        command = ("bridge", "status", str(config.path), "--format", "json")
        done = await asyncio.to_thread(cli, *command)
        assert done.code == 0
        (row,) = done.json
        assert ("nothing is copied yet" in done.err) == (row["position"] is None)
        return dict(row)

    expected = {"topic": topic, "partition": 0, "target": topic, "end": count}
    assert await status() == {**expected, "position": None, "lag": count}
    try:
        process.start()
        await until(lambda: "copying 1 partition" in process.tail(), "it copies", 60)
        began_at = time.monotonic()
        [url] = re.findall(r"metrics at (http://[^\s/]+)", process.tail())

        def page(name: str) -> str:
            return str(urlopen(f"{url}/{name}").read().decode())

        def copied_bytes() -> int:
            [found] = re.findall(r"^aiokafka08_bridge_bytes_total (\d+)", page("metrics"), re.M)
            return int(found)

        async def has_copied() -> bool:
            return await asyncio.to_thread(copied_bytes) > rate

        await eventually(has_copied, 60, 0.1)
        assert await asyncio.to_thread(page, "healthz") == "ok\n"
        found = await asyncio.to_thread(copied_bytes)  # without a limit, soon all of 4 MB
        assert found <= rate * (time.monotonic() - began_at + 5)
        process.process.terminate()
        assert await asyncio.to_thread(process.finish, 60) == 0
    finally:
        process.close()
    [copied] = map(int, re.findall(r"is committed: (\d+) messages in", process.tail()))
    assert rate < copied * 100 < count * 100
    assert await status() == {**expected, "position": copied, "lag": count - copied}
