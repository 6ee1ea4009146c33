"""A small campaign passes; planted bugs are found, kept and replayed."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiokafka08.consumer.record_buffer import RecordBuffer
from aiokafka08.protocol import _reader_py, api
from aiokafka08.protocol.requests.fetch import FetchRequest
from tests.protocol.golden import VECTORS
from tests.protocol.hostile import Endured
from tests.protocol.mutations import mutated, signed, wrapped
from tests.protocol.oracle import entry, message, wrapper
from tests.protocol.twins import twin
from tests.support.paths import ROOT
from tests.tools.fuzz import __main__ as command
from tests.tools.fuzz import campaign, corpus, server, worlds
from tests.tools.fuzz.mutator import LARGE_BYTES, Mutator, golden
from tests.tools.fuzz.targets import TARGETS, Steps


@pytest.fixture(autouse=True)
def same_twin() -> Iterator[None]:
    """Restore the twin that other tests use."""
    name = twin.name
    yield
    twin.use(name)


def test_a_campaign_reports_each_target(tmp_path: Path) -> None:
    options = ["--examples", "2100", "--guided", "0", "--corpus", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.fuzz", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in lines] == [*TARGETS, "fuzz"]
    assert lines[-1].startswith("fuzz: examples=2100 ")
    assert lines[-1].endswith("failed=0")


def test_an_example_comes_from_its_number() -> None:
    mutator = Mutator(7, {})
    some = [mutator.example(number) for number in range(100)]
    assert some == [Mutator(7, {}).example(number) for number in range(100)]
    assert some != [Mutator(8, {}).example(number) for number in range(100)]
    assert len(mutator.example(1999)[1]) > LARGE_BYTES / 2


@pytest.mark.parametrize("name", TARGETS)
def test_targets_accept_what_real_brokers_sent(name: str) -> None:
    seen = Endured()
    for data in golden(TARGETS[name])[:: 10 if name == "calls" else 1]:  # each of these takes long
        assert campaign.run_one(TARGETS[name], data, seen, Steps(), traced=False) is None
    worlds.end()
    assert seen.values + seen.records > 20


def test_each_call_returns_or_raises_each_byte() -> None:
    """The short form of the target `calls`; `nox -s fuzz` has the long one."""
    seen, pool = Endured(), golden(TARGETS["calls"])
    for number in range(10):
        rng = random.Random(number)
        data = signed(mutated(rng, rng.choice(pool), pool))
        data = wrapped(rng, data) if number % 2 else data
        assert campaign.run_one(TARGETS["calls"], data, seen, Steps(), traced=False) is None
    worlds.end()
    assert seen.records > 50
    assert seen.corrupt > 10


def lose_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = RecordBuffer.pop_records
    monkeypatch.setattr(RecordBuffer, "pop_records", lambda *how: taken(*how)[1:])


def drop_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordBuffer, "add_set", lambda *_: None)


def skip_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(plain: bytes) -> _reader_py.InnerSet:
        return real(plain)._replace(whole_bytes=len(plain))

    real = _reader_py.walk_inner_set
    monkeypatch.setattr(_reader_py, "walk_inner_set", walk)
    monkeypatch.setattr(_reader_py.MessageSetReader, "_check_tail", lambda *_: None)


MESSAGES = b"".join(entry(offset, message(None, b"v")) for offset in range(3))


@pytest.mark.parametrize(
    ("plant", "target", "data", "found"),
    [
        (lose_a_record, "calls", MESSAGES, "lost: Message(offset=0"),
        (drop_a_set, "calls", MESSAGES, "NeverEnds"),
        (skip_the_rest, "set-python", wrapper(2, MESSAGES[:-1]), "lost: Message"),
    ],
    ids=["lost record", "hang", "lost rest"],
)
def test_a_lost_byte_or_a_hang_of_a_call_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    target: str,
    data: bytes,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    error = campaign.run_one(TARGETS[target], data, Endured(), Steps(), traced=False)
    assert error is not None
    assert found in error


def test_an_untyped_error_is_kept_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> None:
        raise IndexError("planted")

    monkeypatch.setattr(api, "decode_response", fail)
    data = golden(TARGETS["response"])[0]
    error = campaign.run_one(TARGETS["response"], data, Endured(), Steps(), traced=False)
    assert error is not None
    assert "IndexError: planted" in error
    path = corpus.keep_finding(tmp_path, "response", data)
    assert command.main(["--replay", str(path)]) == 1
    assert "IndexError: planted" in capsys.readouterr().out
    monkeypatch.undo()
    assert command.main(["--replay", str(path)]) == 0


def test_memory_out_of_proportion_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    monkeypatch.setattr(api, "decode_response", lambda *_: kept.append(bytes(64 << 20)))
    data = next(
        one
        for one in golden(TARGETS["response"])
        if VECTORS[one[0]].request_class is not FetchRequest
    )
    error = campaign.run_one(TARGETS["response"], data, Endured(), Steps(), traced=True)
    assert error is not None
    assert "bytes of memory for" in error


def test_an_internal_error_of_a_broker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("planted")

    worlds.end()
    requests = [one for one in golden(TARGETS["server"]) if one[4:6] == b"\0\3"]
    assert requests
    monkeypatch.setattr("aiokafka08.testing.server.handle", fail)
    error = campaign.run_one(TARGETS["server"], requests[0], Endured(), Steps(), traced=False)
    assert error is not None
    assert "KeyError: 'planted'" in error


def test_ended_worlds_are_freed() -> None:
    def frozen_objects() -> int:
        server.serve(server._GOOD, Endured(), Steps())
        server.finish()
        return gc.get_freeze_count()

    for _ in range(3):  # what is imported and made once
        before = frozen_objects()
    for _ in range(5):
        after = frozen_objects()
    assert after - before < 300  # a world left 190


def test_the_corpus_keeps_an_input_once(tmp_path: Path) -> None:
    assert corpus.load(tmp_path / "none") == {}
    corpus.keep(tmp_path, "request", b"one")
    corpus.keep(tmp_path, "request", b"one")
    corpus.keep(tmp_path, "set-c", b"two")
    corpus.keep_finding(tmp_path, "set-c", b"three")
    assert corpus.load(tmp_path) == {"request": [b"one"], "set-c": [b"two"]}
