"""The commands `gateway`: their errors, and a process that serves and ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, command_line
from tests.brokers.ports import free_port, free_ports
from tests.brokers.reaper import reaper
from tests.brokers.wire import metadata
from tests.support.processes import rest_of_output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to", "kafka:9092", "--listen", "0.0.0.0:9092"], "--allow, or say --open"),
        (["--to", "kafka:9092", "--listen", "0.0.0.0:9092", "--open"], "--advertise"),
        (["--to", "kafka:9092", "--listen", "here"], "--listen here: expected ADDRESS:PORT"),
        (["--to", "kafka:9092", "--allow", "10.0.0.1/8"], "--allow 10.0.0.1/8: "),
        (["--to", "kafka:9092", "--metrics", "9094"], "--metrics 9094: expected [HOST]:PORT"),
        (["--to", "http://kafka"], "http://kafka"),
        (["--to", "kafka:9092", "--peers", "g1:x"], "--peers g1:x: "),
        (["--to", "kafka:9092", "--zookeeper", "zk:x/kafka"], "--zookeeper zk:x: "),
        ([], "--to: missing; expected brokers of the target"),
        (["--to", "kafka:9092", "--topics", "*.x"], "--topics='*.x': "),
        (
            ["--to", "kafka:9092", "check"],
            "--to: expected behind the command, as in 'aiokafka08 ga",
        ),
        (["run"], "--to: missing"),
        (["clients", "ftp://x"], "URL ftp://x: expected http://HOST:PORT"),
    ],
)
def test_wrong_options_are_wrong_usage(cli: RunCommand, arguments: list[str], text: str) -> None:
    done = cli("gateway", *arguments)
    assert done.code == 2
    assert text in done.err


def test_clients_of_a_gateway_that_is_not_there_fail(cli: RunCommand) -> None:
    done = cli("gateway", "clients", f"127.0.0.1:{free_port()}")
    assert (done.code, done.out, done.err.count("\n")) == (1, b"", 1)
    assert "expected the address that a gateway serves" in done.err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("listen = 9092", "gateway.toml: listen=9092: expected a non-empty string"),
        ("lisen = 'x'", "gateway.toml: lisen=…: unknown key; similar: listen"),
        (
            "[topics]\nincludes = ['x']",
            "gateway.toml: topics.includes=…: unknown key; similar: include",
        ),
        ("[topics]\ninclude = 'x'", "topics.include='x': expected a list of non-empty strings"),
        ("[topics]\ninclude = ['*']", "gateway.toml: topics.include='*': nothing to repeat"),
        ("open = 1", "gateway.toml: open=1: expected true or false"),
        (
            "isolation = 'none'",
            "isolation='none': expected one of read_uncommitted, read_committed",
        ),
        ("listen = 'here'", "gateway.toml: listen='here': expected ADDRESS:PORT"),
        ("listen = '0.0.0.0:9092'", "Name the clients' networks by allow, or say open"),
        ("metrics = '9094'", "gateway.toml: metrics 9094: expected [HOST]:PORT"),
        ("to = 'http://x'", "gateway.toml: to='http://x': 'http://x' is a URL"),
        ("listen", "gateway.toml: not TOML"),
        ("", "gateway.toml: to: missing"),
    ],
)
def test_wrong_file_is_wrong_usage(cli: RunCommand, tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "gateway.toml"
    has_target = not text or text.startswith("to =")
    path.write_text(text if has_target else f"to = 'kafka:9092'\n{text}\n")
    for command in ("run", "check"):
        done = cli("gateway", command, str(path))
        assert done.code == 2
        assert error in done.err


def test_flag_overrides_the_file(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text("to = 'kafka:9092'\nlisten = '127.0.0.1:9092'\n")
    done = cli("gateway", "run", str(path), "--listen", "there")
    assert done.code == 2
    assert done.err.startswith("aiokafka08: --listen there: expected ADDRESS:PORT")
    done = cli("gateway", "run", str(tmp_path / "missing.toml"))
    assert "missing.toml: No such file or directory; expected the TOML file of a ga" in done.err


def test_damaged_state_is_wrong_usage(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "listeners.json"
    path.write_text("{")
    done = cli("gateway", "--to", "kafka:9092", "--state", str(path))
    assert done.code == 2
    assert "listeners.json: not a table of listeners" in done.err


def test_file_with_a_password_that_others_can_read_is_wrong_usage(
    cli: RunCommand, tmp_path: Path
) -> None:
    path, key = tmp_path / "target.properties", tmp_path / "key.pem"
    options = ["--to", f"127.0.0.1:{free_port()}", "--target-config", str(path)]
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\n")
    path.chmod(0o644)
    with path.open("a") as file:
        file.write("sasl.password=top-secret\n")
    done = cli("gateway", *options)
    assert done.code == 2
    assert f"{path}: it has a password, and others can use it. chmod 600 it" in done.err
    assert "top-secret" not in done.err
    path.chmod(0o640)
    assert cli("gateway", *options).code == 1  # the target can't be reached
    path.write_text(f"security.protocol=SSL\nssl.certificate.location={key}\n")
    path.chmod(0o644)  # it has no secret itself
    key.write_text("")
    key.chmod(0o644)
    assert f"{key}: it has a key, and others can use it" in cli("gateway", *options).err


def test_target_that_cannot_be_reached_is_a_failure(cli: RunCommand) -> None:
    done = cli("gateway", "--to", f"127.0.0.1:{free_port()}")
    assert done.code == 1
    assert re.search(r"--to: 127\.0\.0\.1:\d+: .*refused.*Check the addresses", done.err)


def test_check_of_a_target_that_cannot_be_reached_is_a_finding(cli: RunCommand) -> None:
    """Ports are tried all the same: that of --listen, and that of each broker in the state."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        used = f"127.0.0.1:{other.getsockname()[1]}"
        arguments = ["--to", f"127.0.0.1:{free_port()}", "--listen", used, "--format", "json"]
        done = cli("gateway", "check", *arguments)
    assert done.code == 1
    found = [(one["code"], one["severity"]) for one in json.loads(done.out)["findings"]]
    assert found == [("target-unreachable", "critical"), ("port-unavailable", "critical")]


def test_address_of_another_machine_is_a_finding(cli: RunCommand) -> None:
    arguments = ["--listen", "192.0.2.1:9092", "--allow", "192.0.2.0/24", "--format", "json"]
    done = cli("gateway", "check", "--to", f"127.0.0.1:{free_port()}", *arguments)
    found = {one["code"]: one for one in json.loads(done.out)["findings"]}
    assert found["port-unavailable"]["why"] == "Cannot assign requested address"
    assert found["port-unavailable"]["action"].startswith(
        "Choose a free port at an address of this machine by --listen or --metrics"
    )


def test_port_in_use_ends_the_start_and_is_a_finding(cli: RunCommand) -> None:
    with EmbeddedCluster(version="0.10") as cluster, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        arguments = ["--to", cluster.bootstrap_servers, "--listen", listen]
        done = cli("gateway", *arguments)
        assert done.code == 1
        assert f"{listen}: Address already in use. Choose a free port" in done.err
        done = cli("gateway", "check", *arguments, "--format", "tsv")
        assert done.code == 1
        assert f"port-unavailable\tcritical\t{listen}\t" in done.out.decode()


def test_check_looks_at_peers_and_zookeeper(cli: RunCommand) -> None:
    """A broker of the target isn't a gateway."""
    listen, zookeeper = f"127.0.0.1:{free_ports()}", f"127.0.0.1:{free_port()}"
    with EmbeddedCluster(version="0.10") as cluster:
        broker = cluster.bootstrap_servers
        arguments = ["--to", broker, "--listen", listen, "--zookeeper", zookeeper]
        arguments += ["--peers", f"{listen},{broker},127.0.0.1:{free_port()}", "--format", "json"]
        done = cli("gateway", "check", *arguments)
    assert (done.code, done.err) == (1, "")
    found = {one["code"]: one for one in json.loads(done.out)["findings"]}
    assert found["peer-mismatch"]["where"] == f"--peers {broker}"
    assert "refused" in found["peer-unreachable"]["why"]
    assert f"ZooKeeper {zookeeper} can't be reached" in found["zookeeper-unusable"]["why"]


def test_check_looks_at_the_ports_of_each_listener(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    with EmbeddedCluster(version="0.10") as cluster, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        used, first = f"127.0.0.1:{other.getsockname()[1]}", f"127.0.0.1:{free_ports()}"
        text = f"to = {cluster.bootstrap_servers!r}\nlisten = '{first}'\nmetrics = '{{metrics}}'\n"
        text += f"[listeners.billing]\nlisten = '{used}'\n"
        path.write_text(text.format(metrics=f":{free_port()}"))
        done = cli("gateway", "check", str(path), "--format", "json")
        found = json.loads(done.out)["findings"]
        ports = [one["where"] for one in found if one["code"] == "port-unavailable"]
        assert (done.code, ports) == (1, [used])
        assert len({json.dumps(one) for one in found}) == len(found)
        path.write_text(text.format(metrics=used))
        done = cli("gateway", "check", str(path))
        assert done.code == 2
        assert f"metrics={used!r}: a listener has this port" in done.err


def test_listeners_whose_ports_meet_are_refused(cli: RunCommand, tmp_path: Path) -> None:
    path, port = tmp_path / "gateway.toml", free_ports()
    with EmbeddedCluster(version="0.10", brokers=2) as cluster:
        path.write_text(
            f"to = {cluster.bootstrap_servers!r}\nlisten = '127.0.0.1:{port}'\nworkers = 2\n"
            f"[listeners.billing]\nlisten = '127.0.0.1:{port + 1}'\n"
        )
        done = cli("gateway", "run", str(path))
    assert done.code == 1
    assert "the listeners' first ports leave 1 ports for 2 brokers" in done.err


def test_ports_that_no_file_keeps_are_a_finding(cli: RunCommand, tmp_path: Path) -> None:
    with EmbeddedCluster(version="0.10", brokers=2) as cluster:
        listen = f"127.0.0.1:{free_ports()}"
        arguments = ["check", "--to", cluster.bootstrap_servers, "--listen", listen]
        done = cli("gateway", *arguments, "--format", "json")
        found = [one["where"] for one in json.loads(done.out)["findings"]
                 if one["code"] == "ports-not-kept"]  # fmt: skip
        assert found == ["--state"]
        arguments += ["--state", str(tmp_path / "listeners.json")]
        done = cli("gateway", *arguments, "--format", "json")
        assert b"ports-not-kept" not in done.out


def test_peers_that_would_move_the_ports_are_refused(cli: RunCommand, tmp_path: Path) -> None:
    path, port = tmp_path / "listeners.json", free_ports()
    PortTable(path, first_ports={"": port}).add([0])
    with EmbeddedCluster(version="0.10") as cluster:
        arguments = ["--to", cluster.bootstrap_servers, "--state", str(path)]
        arguments += ["--listen", f"127.0.0.1:{port}", "--peers", f"127.0.0.1:{port}"]
        done = cli("gateway", *arguments)
    assert done.code == 2
    assert f"the first broker's port was {port}, and would be {port + 1}" in done.err


def test_second_gateway_with_the_same_state_is_refused(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "listeners.json"
    with EmbeddedCluster(version="0.10") as cluster, PortTable(path).lock():
        listen = f"127.0.0.1:{free_ports()}"
        done = cli(
            *("gateway", "--to", cluster.bootstrap_servers, "--listen", listen),
            *("--state", str(path)),
        )
    assert done.code == 2
    assert f"{path}: another gateway uses it, which has locked listeners.json.lock" in done.err


def test_target_that_is_too_old_ends_the_start(cli: RunCommand) -> None:
    with EmbeddedCluster(version="0.10") as cluster:
        arguments = ["--to", cluster.bootstrap_servers, "--listen", f"127.0.0.1:{free_ports()}"]
        done = cli("gateway", *arguments)
    assert done.code == 1
    assert "Fetch 10: the target takes 0 to 3, so old clients can't use this API" in done.err
    assert "Use a target of Kafka 2.1 to 4.x, or --observe before its upgrade" in done.err


def test_state_that_cannot_be_used_is_a_finding(cli: RunCommand, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    state, missing = folder / "listeners.json", folder / "nodir/listeners.json"

    def found(path: Path) -> list[str]:
        arguments = ["--to", f"127.0.0.1:{free_port()}", "--state", str(path), "--format", "json"]
        done = cli("gateway", "check", *arguments)
        assert done.code == 1
        findings = json.loads(done.out)["findings"]
        return [one["why"] for one in findings if one["code"] == "state-unusable"]

    assert found(missing) == [f"{missing}: can't be written: No such file or directory"]
    assert found(state) == []
    assert list(folder.iterdir()) == []
    with PortTable(state).lock():
        (why,) = found(state)
    assert why.startswith(f"{state}: another gateway uses it")
    assert found(state) == []


def test_process_serves_until_sigterm_and_ends_with_0(tmp_path: Path) -> None:
    port, state = free_ports(), tmp_path / "listeners.json"
    with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        metrics_port = free_port()
        options = ["--observe", "--listen", f"127.0.0.1:{port}", "--state", str(state)]
        options += ["--metrics", f":{metrics_port}"]
        command = command_line("gateway", "--to", cluster.bootstrap_servers, *options)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            lines: list[str] = []
            while not re.search(r"gateway: listening on port \d+ for node 0", "".join(lines)):
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            assert metadata(port, ["t"]).brokers == {0: ("127.0.0.1", port)}
            address = f"http://127.0.0.1:{metrics_port}"
            with urllib.request.urlopen(f"{address}/clients") as page:
                (client,) = json.load(page)
            assert client["client_id"] == "harness"
            with urllib.request.urlopen(f"{address}/metrics") as page:
                text = page.read().decode()
            assert 'api="Metadata",version="0",fate="passed"} 1' in text
            assert 'aiokafka08_gateway_request_seconds_count{api="Metadata"} 1' in text
            with urllib.request.urlopen(f"{address}/healthz") as page:
                assert page.read() == b"ok\n"
            listed = subprocess.run(
                command_line("gateway", "clients", f"127.0.0.1:{metrics_port}"),
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            header, row = listed.stdout.splitlines()
            assert dict(zip(header.split("\t"), row.split("\t"), strict=True))["passed"] == (
                "Metadata 0: 1"
            )
            process.send_signal(signal.SIGTERM)
            rest = rest_of_output(process, 30)[1]
        assert process.returncode == 0
        assert "Traceback" not in "".join(lines) + rest
        assert rest.endswith("aiokafka08: stopped\n")
    assert '"0": 0' in state.read_text()


def test_sigterm_ends_it_though_zookeeper_is_silent(tmp_path: Path) -> None:
    """The listeners close at once, while the mirror still waits for ZooKeeper."""
    port, log = free_ports(), tmp_path / "log"
    with EmbeddedCluster(version="0.10") as cluster, socket.socket() as zookeeper:
        zookeeper.bind(("127.0.0.1", 0))
        zookeeper.listen()
        zookeeper.settimeout(60)
        options = ["--observe", "--zookeeper", f"127.0.0.1:{zookeeper.getsockname()[1]}"]
        options += ["--to", cluster.bootstrap_servers, "--listen", f"127.0.0.1:{port}"]
        with (
            log.open("w") as errors,
            subprocess.Popen(command_line("gateway", *options), stderr=errors) as process,
        ):
            reaper.watch_process(process.pid)
            session = zookeeper.accept()[0]
            with session, socket.create_connection(("127.0.0.1", port)) as client:
                process.send_signal(signal.SIGTERM)
                assert not client.recv(1)  # closed
                session.settimeout(0)
                session.recv(4096)  # the request for a session
                with pytest.raises(BlockingIOError):
                    session.recv(1)  # it is still open
            process.wait(30)
            reaper.forget_process(process.pid)
    assert process.returncode == 0
    assert "Traceback" not in log.read_text()
