"""What shells complete: commands, options, profiles, and the names of a cluster."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from aiokafka08._tools.cli import completing
from aiokafka08._tools.cli.configuration import profiles_path
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests._tools.cli.test_group import T0, commit

SHELLS = ("bash", "zsh", "fish")


Complete = Callable[..., list[str]]


@pytest.fixture
def complete(cli: RunCommand, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """A function that returns what a shell would offer for the last word; stderr stays empty."""
    monkeypatch.setattr(completing, "_PATIENCE_S", 30.0)

    def offered(shell: str, *words: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setenv("_AIOKAFKA08_COMPLETE", f"{shell}_complete")
            patch.setenv("COMP_WORDS", " ".join(["aiokafka08", *words]))
            patch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
            done = cli()
        assert done.err == ""
        lines = [line for line in done.lines if line]
        if shell == "zsh":  # type, word and help, each on a line
            return lines[1::3]
        return [line.partition(",")[2].partition("\t")[0] for line in lines]

    return offered


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1, "others": 1, "visits": 1})
def test_topics_and_groups_of_the_cluster_are_completed(
    shell: str, kafka_cluster: EmbeddedCluster, complete: Complete
) -> None:
    commit(kafka_cluster, "billing", {T0: 0})
    at = ("-b", kafka_cluster.bootstrap_servers)
    assert complete(shell, "consume", *at, "o") == ["orders", "others"]
    assert complete(shell, "group", "lag", *at, "b") == ["billing"]


# Ends the line that a user has typed: it prints its words, instead of running it.
_PRINT_WORDS = "\x01printf '<%s>' \n"
_PROGRAM = """#!{python}
import sys
from aiokafka08._tools.cli import completing
completing._PATIENCE_S = 30
from aiokafka08._tools.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def typed_in_bash(folder: Path, lines: Iterable[str]) -> str:
    """Return what an interactive bash prints for the words of lines, each after a Tab."""
    program = folder / "aiokafka08"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    rc = folder / "bashrc"
    rc.write_text(f'PATH={folder}:$PATH\nPS1=\neval "$(aiokafka08 completion bash)"\n')
    terminal, side = pty.openpty()
    with subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", str(rc), "-i"],
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
        env={**os.environ, "HISTFILE": "", "INPUTRC": os.devnull, "TERM": "dumb"},
    ) as bash:
        os.close(side)
        os.write(terminal, b"".join(f"{line}\t{_PRINT_WORDS}".encode() for line in lines))
        os.write(terminal, b"exit\n")
        printed = bytearray()
        try:
            while block := os.read(terminal, 65536):
                printed += block
        except OSError:  # Linux reports the end of the other side so
            pass
        finally:
            os.close(terminal)
            bash.kill()
    return printed.decode()


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1, "visits": 1})
def test_bash_completes_beside_words_that_it_splits(
    kafka_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """bash splits words at ":" and "="."""
    commit(kafka_cluster, "billing", {T0: 0})
    commit(kafka_cluster, "team:pay", {T0: 0})
    at = kafka_cluster.bootstrap_servers
    printed = typed_in_bash(
        tmp_path,
        [
            f"aiokafka08 consume -b {at} ord",
            f"aiokafka08 consume --bootstrap={at} vis",
            f"aiokafka08 consume -b {at} orders --group=bil",
            f"aiokafka08 group lag -b {at} team:p",
        ],
    )
    assert f"<-b><{at}><orders>" in printed
    assert f"<--bootstrap={at}><visits>" in printed
    assert "<orders><--group=billing>" in printed
    assert f"<{at}><team:pay>" in printed


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1, "others": 1})
def test_words_that_are_there_arent_offered_again(
    kafka_cluster: EmbeddedCluster, complete: Complete
) -> None:
    commit(kafka_cluster, "billing", {T0: 0})
    at = ("-b", kafka_cluster.bootstrap_servers)
    assert complete("bash", "consume", *at, "orders", "o") == ["others"]
    assert complete("bash", "consume", *at, "orders", "-g", "b") == ["billing"]
    assert complete("bash", "topic", "create", *at, "o") == []


def test_profiles_of_the_file_are_completed(tmp_path: Path, complete: Complete) -> None:
    path = profiles_path()
    path.parent.mkdir(parents=True)
    path.write_text('[profiles.legacy]\nbootstrap.servers = "x"\n[profiles.test]\n')
    assert complete("bash", "topics", "--profile", "l") == ["legacy"]
    other = tmp_path / "other.toml"
    other.write_text("[profiles.large]\n")
    assert complete("bash", "topics", "-F", str(other), "--profile", "l") == ["large"]


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "-b", "127.0.0.1:1", "o"),
        ("consume", "-b", "?", "o"),
        ("consume", "o"),
        ("consume", "-F", "/no such file", "o"),
        ("topics", "-F", "/no such file.toml", "--profile", "l"),
        ("nonsense", "o"),
    ],
)
def test_failure_completes_nothing_and_prints_nothing(
    words: tuple[str, ...], complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "_PATIENCE_S", 0.2)
    assert complete("bash", *words) == []
