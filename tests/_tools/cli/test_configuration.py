"""Where commands find the cluster: options, environment, profiles, files of other clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokafka08._tools.cli.configuration import profiles_path
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1}) as running:
        yield running


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kcat.conf", "metadata.broker.list={}\nbroker.version.fallback=0.8.2\n"),
        ("client.properties", "bootstrap.servers: {}\nkey.serializer=X\n"),
        ("consumer.properties", "zookeeper.connect=127.0.0.1:1\nbroker.list={}\ngroup.id=g\n"),
        ("a.toml", 'default = "a"\n[profiles.a]\nbootstrap.servers = "{}"\n'),
    ],
)
def test_file_of_each_kind_names_the_cluster(
    cluster: EmbeddedCluster,
    cli: RunCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
) -> None:
    path = write(tmp_path / name, text.format(cluster.bootstrap_servers))
    assert cli("topics", "-q", "-F", path).lines == ["orders"]
    monkeypatch.setenv("AIOKAFKA08_CONFIG", path)
    assert cli("topics", "-q").lines == ["orders"]


def test_profile_comes_from_the_users_file(
    cluster: EmbeddedCluster, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
        default = "wrong"
        [profiles.wrong]
        bootstrap.servers = "127.0.0.1:1"
        start.timeout.ms = 10
        [profiles.right]
        bootstrap.servers = "{cluster.bootstrap_servers}"
    """
    write(profiles_path(), text)
    assert cli("topics").code == 1
    assert cli("topics", "-q", "--profile", "right").lines == ["orders"]
    monkeypatch.setenv("AIOKAFKA08_PROFILE", "right")
    assert cli("topics", "-q").lines == ["orders"]
    assert "no profile 'x'; it has right, wrong" in cli("topics", "--profile", "x").err


def test_options_precede_environment_profile_and_file(
    cluster: EmbeddedCluster, cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step gives the right address to the source that precedes the wrong one."""
    right, wrong = cluster.bootstrap_servers, "127.0.0.1:1"
    quick = ("-X", "start.timeout.ms=10")
    conf = write(tmp_path / "kcat.conf", f"bootstrap.servers={wrong}\n")
    assert cli("topics", "-F", conf, *quick).code == 1
    write(profiles_path(), f'[profiles.p]\nbootstrap.servers = "{right}"')
    assert cli("topics", "-F", conf, "--profile", "p").code == 0
    monkeypatch.setenv("AIOKAFKA08_BOOTSTRAP_SERVERS", wrong)
    assert cli("topics", "-F", conf, "--profile", "p", *quick).code == 1
    assert cli("topics", "-F", conf, "--profile", "p", "-b", right).code == 0
    assert cli("topics", "-b", wrong, "-X", f"bootstrap.servers={right}", *quick).code == 1


def test_default_profile_is_left_out_with_a_file(
    cluster: EmbeddedCluster, cli: RunCommand, tmp_path: Path
) -> None:
    write(profiles_path(), 'default = "p"\n[profiles.p]\nbootstrap.servers = "127.0.0.1:1"')
    conf = write(tmp_path / "kcat.conf", f"bootstrap.servers={cluster.bootstrap_servers}\n")
    assert cli("topics", "-q", "-F", conf).lines == ["orders"]


def test_misspelt_variable_and_line_are_errors(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "kcat.conf", "bootstrap.servers=x\nlinger\n")
    assert f"{path}, line 2: expected name=value" in cli("topics", "-F", path).err
    path = write(tmp_path / "kcat.conf", "bootstrap.servers=x\nlinger.m=1\n")
    done = cli("topics", "-F", path)
    assert done.err == f"aiokafka08: linger.m=…: unknown property; similar: linger.ms ({path})\n"
    monkeypatch.setenv("AIOKAFKA08_BOOTSTRAP_SERVER", "x")
    done = cli("topics")
    assert (done.code, done.out) == (2, b"")
    assert "bootstrap.server=…: unknown property; similar: bootstrap.servers" in done.err
    assert "(environment)" in done.err


def test_password_is_in_no_output(cli: RunCommand, tmp_path: Path) -> None:
    path = write(
        tmp_path / "client.properties",
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SSL\nssl.key.password=hush\n"
        "ssl.keystore.location=/nowhere.pem\nssl.keystore.type=PEM\nsasl.password=hush\n",
    )
    done = cli("topics", "-F", path, "--log-level", "debug")
    assert done.code == 2
    assert "/nowhere.pem" in done.err
    assert "hush" not in done.err


def test_brokers_of_the_command_line_take_no_zookeeper_of_a_profile(
    cluster: EmbeddedCluster, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of the profile's cluster would be deleted; what reads only goes on without it."""
    text = """
        [profiles.prod]
        bootstrap.servers = "prod:9092"
        zookeeper.connect = "zk-prod:2181"
    """
    write(profiles_path(), text)
    server = ("-b", cluster.bootstrap_servers, "--profile", "prod")
    done = cli("topic", "delete", "orders", "--yes", *server)
    assert done.code == 1
    first, second = done.err.splitlines()
    assert first.startswith("aiokafka08: zookeeper.connect='zk-prod:2181' (")
    assert first.endswith(
        "config.toml, profile prod) isn't used beside brokers on the command line, which may be of "
        "another cluster. If it is theirs, give --zookeeper zk-prod:2181 too"
    )
    assert "Give --zookeeper host:2181/chroot" in second
    monkeypatch.setenv("AIOKAFKA08_ZOOKEEPER_CONNECT", "zk:2181")
    done = cli("topics", "-q", "-b", cluster.bootstrap_servers)
    assert (done.code, done.lines, done.err) == (0, ["orders"], "")  # only brokers answer it
    done = cli("group", "list", "-b", cluster.bootstrap_servers)
    assert done.code == 0
    assert "zookeeper.connect='zk:2181' (environment) isn't used beside" in done.err


def test_what_was_changed_names_the_profile_of_the_cluster(
    cluster: EmbeddedCluster, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = cluster.bootstrap_servers
    path = write(profiles_path(), f'[profiles.test]\nbootstrap.servers = "{address}"\n')
    sent = "aiokafka08: 1 message was acknowledged: topic 'orders', cluster"
    done = cli("produce", "orders", "--profile", "test", stdin=b"tea\n")
    assert done == (0, b"", f"{sent} {address} ({path}, profile test)\n")
    monkeypatch.setenv("AIOKAFKA08_BOOTSTRAP_SERVERS", address)
    assert cli("produce", "orders", stdin=b"tea\n").err == f"{sent} {address} (environment)\n"
