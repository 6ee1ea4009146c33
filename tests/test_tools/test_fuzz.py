"""A small campaign passes; planted bugs are found, kept and replayed."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.requests.fetch import FetchRequest
from tests.protocol.golden import VECTORS
from tests.protocol.hostile import Endured
from tests.protocol.twins import twin
from tests.support.paths import ROOT
from tests.tools.fuzz import __main__ as command
from tests.tools.fuzz import campaign, corpus, server
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
    for data in golden(TARGETS[name]):
        assert campaign.run_one(TARGETS[name], data, seen, Steps(), traced=False) is None
    server.finish()
    assert seen.values + seen.records > 20


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

    server.finish()
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
