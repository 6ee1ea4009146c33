"""Misspelt commands, options, topics, groups, profiles: the error asks what was meant."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests._tools.cli.test_group import T0, commit


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("topisc", "no such command 'topisc'. Did you mean 'topic"),
        ("group lgs", "no such command 'lgs'. Did you mean 'lag'?"),
        ("bridge cutovr", "no such command 'cutovr'. Did you mean 'cutover'?"),
        ("topics --bootstap x", "--bootstrap"),
    ],
)
def test_misspelt_command_or_option_asks(line: str, expected: str, cli: RunCommand) -> None:
    done = cli(*line.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    assert expected in done.err


@pytest.mark.parametrize(
    ("line", "option", "right"),
    [
        ("-b x:1 topics -q", "-b", "aiokafka08 topics -b x:1 -q"),
        ("--zookeeper=z -b x group lag g", "--zookeeper", "group lag --zookeeper=z -b x g"),
        ("group -b x:1 lag g", "-b", "aiokafka08 group lag -b x:1 g"),
    ],
)
def test_option_before_the_command_is_shown_behind_it(
    line: str, option: str, right: str, cli: RunCommand
) -> None:
    done = cli(*line.split())
    assert (done.code, done.out) == (2, b"")
    assert f"the option {option} belongs behind the command: " in done.err
    assert right in done.err


def test_unknown_option_before_the_command_stays_unknown(cli: RunCommand) -> None:
    for line in (["--nonsense", "topics"], ["--nonsense"]):
        done = cli(*line)
        assert (done.code, "no such option" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "right", "commands"),
    [
        ("-b x:1", "aiokafka08 COMMAND -b x:1", "metadata, topics, offsets, "),
        ("group --format json", "aiokafka08 group COMMAND --format json", "list, describe, lag, "),
    ],
)
def test_option_without_a_command_lists_the_commands(
    line: str, right: str, commands: str, cli: RunCommand
) -> None:
    done = cli(*line.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    option = next(word for word in line.split() if word.startswith("-"))
    assert f"the option {option} belongs behind a command, as in '{right}'" in done.err
    assert f"The commands are {commands}" in done.err


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1}, auto_create=False)
def test_misspelt_topic_or_group_asks(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    commit(kafka_cluster, "billing", {T0: 0})
    at = ("-b", kafka_cluster.bootstrap_servers)
    for arguments in (
        ["metadata", "ordrs"],
        ["offsets", "ordrs"],
        ["consume", "ordrs", "-e"],
        ["produce", "ordrs", "-X", "delivery.timeout.ms=100"],
        ["group", "reset", "billing", "--to-latest", "--topic", "ordrs"],
        ["group", "lag", "billing", "--topic", "ordrs"],
    ):
        done = cli(*arguments, *at, stdin=b"tea\n")
        assert (done.code, done.err.endswith(". Did you mean 'orders'?\n")) == (1, True), done
    for arguments in (
        ["group", "lag", "biling"],
        ["group", "describe", "biling"],
        ["group", "delete", "biling", "--yes"],
        ["group", "export", "biling"],
        ["group", "reset", "biling", "--to-latest"],
    ):
        done = cli(*arguments, *at)
        assert (done.code, done.err.endswith(". Did you mean 'billing'?\n")) == (1, True), done


def test_misspelt_profile_asks(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[profiles.legacy]\nbootstrap.servers = "x"\n[profiles.test]\n')
    done = cli("topics", "-F", str(path), "--profile", "legcy")
    assert (done.code, done.err) == (
        2,
        f"aiokafka08: configuration file {path}: no profile 'legcy'; it has legacy, test. Did you "
        "mean 'legacy'?\n",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kcat.conf", "bootstrap.servers={}\n"),
        ("client.properties", "bootstrap.servers={}\n"),
        ("a.toml", 'default = "a"\n[profiles.a]\nbootstrap.servers = "{}"\n'),
    ],
)
@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_byte_order_mark_of_a_configuration_file_is_left_out(
    name: str, text: str, cli: RunCommand, kafka_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    path = tmp_path / name
    text = text.format(kafka_cluster.bootstrap_servers)
    path.write_bytes(codecs.BOM_UTF8 + text.encode())
    assert cli("topics", "-q", "-F", str(path)) == (0, b"orders\n", "")
    path.write_text(text, encoding="utf-16")
    assert "UTF-16; expected UTF-8" in cli("topics", "-F", str(path)).err


def test_invisible_character_of_a_property_is_shown(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "kcat.conf"
    path.write_text("bootstrap.servers=x\nlinger\u200b.ms=1\n", encoding="utf-8")
    done = cli("topics", "-F", str(path))
    assert r"linger\u200b.ms=…: unknown property; similar: linger.ms" in done.err


@pytest.mark.parametrize("line", ["create new", "delete t --yes", "grow t 3", "config t"])
def test_topic_command_without_zookeeper_names_the_option(line: str, cli: RunCommand) -> None:
    with EmbeddedCluster(1, "0.10", {"t": 1}) as cluster:
        done = cli("topic", *line.split(), "-b", cluster.bootstrap_servers)
    assert (done.code, done.out, done.err.count("\n")) == (1, b"", 1)
    assert "brokers before 0.10.1 have no request for it" in done.err
    assert "--zookeeper host:2181/chroot" in done.err
    assert "_" not in done.err  # no method or argument of the Python client
    assert ("auto.create" in done.err) is (line == "create new")
