"""Jars, versions, settings and the command line, without a broker (Maven is a script)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.brokers import HarnessError, MissingToolError, RealCluster, UnsupportedByBrokerError
from tests.brokers.__main__ import main
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.jars import jar_folder
from tests.brokers.properties import Listeners, render, server_properties
from tests.brokers.versions import VERSIONS, find_version
from tests.support.paths import ROOT

MakeTool = Callable[[str, str], Path]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTool:
    """An empty cache, and a PATH with only the scripts that the test writes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("AIOKAFKA08_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AIOKAFKA08_NO_REAL_BROKERS", raising=False)

    def make(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        path.chmod(0o755)
        return path

    return make


def test_command_runs_without_pytest() -> None:
    """For those who try a program on a real broker."""
    program = "import sys; sys.modules['pytest'] = None; import tests.brokers.__main__"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


# The last argument is -DoutputDirectory=DIR.
FETCHES = """\
echo run >> {log}
for last; do :; done
dir="${{last#*=}}"
mkdir "$dir"
sleep 0.2
: > "$dir/kafka_2.10-x.jar"
"""


def test_unknown_version_error_names_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(HarnessError, match=r"'0\.8\.3'; known versions: 0\.8\.0, .*4\.1\.0"):
        RealCluster("0.8.3")
    with pytest.raises(SystemExit):
        main(["0.8.3"])
    assert "known versions: 0.8.0, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["0.8.2.2", "--ssl"], "Kafka 0.8.2.2 has no SSL listeners"),
        (["0.8.2.2", "--brokers", "0"], "at least one broker"),
    ],
)
def test_unsupported_option_raises_before_start(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert error in capsys.readouterr().err


def test_missing_program_is_named(tools: MakeTool) -> None:
    with pytest.raises(MissingToolError, match="`mvn` was not found"):
        jar_folder("0.8.0")
    tools("mvn", "exit 0")
    with pytest.raises(MissingToolError, match="`java` was not found"):
        jar_folder("0.8.0")
    # Tests fail then, and name the variable that skips them.
    with pytest.raises(pytest.fail.Exception, match="AIOKAFKA08_NO_REAL_BROKERS=1"):
        BrokerClusters().get("0.8.0")


def test_environment_variable_skips_real_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOKAFKA08_NO_REAL_BROKERS", "1")
    with pytest.raises(pytest.skip.Exception, match="not wanted"):
        BrokerClusters().get("0.8.0")


def test_failing_maven_shows_output_and_leaves_nothing(tools: MakeTool, tmp_path: Path) -> None:
    tools("java", "")
    tools("mvn", 'for last; do :; done; mkdir "${last#*=}"; echo no such artifact; exit 3')
    with pytest.raises(HarnessError, match=r"(?s)0\.8\.0.*exit code 3.*no such artifact"):
        jar_folder("0.8.0")
    assert [path.name for path in (tmp_path / "cache/jars").iterdir()] == ["0.8.0.lock"]


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_concurrent_callers_download_jars_once(
    tools: MakeTool, tmp_path: Path, executor: type[ThreadPoolExecutor | ProcessPoolExecutor]
) -> None:
    tools("java", "")
    tools("mvn", FETCHES.format(log=tmp_path / "log"))
    stale = tmp_path / "cache/jars/.0.8.0-killed"
    stale.mkdir(parents=True)
    with executor(4) as pool:
        folders = set(pool.map(jar_folder, ["0.8.0"] * 4))
    assert (tmp_path / "log").read_text() == "run\n"
    (folder,) = folders
    assert [path.name for path in folder.iterdir()] == ["kafka_2.10-x.jar"]
    assert not stale.exists()


def test_server_properties_follow_the_version(tmp_path: Path) -> None:
    def settings(version: str, listeners: Listeners) -> dict[str, object]:
        return server_properties(
            *(VERSIONS[version], 1, 3, listeners, tmp_path),
            None if version.startswith("4.") else "127.0.0.1:2181",
            security={},
            voters={0: 9095, 1: 9096},
        )

    plain = Listeners(9092, 9999)
    old = settings("0.8.0", plain)
    assert (old["port"], old["advertised.port"], old["broker.id"]) == (9092, 9999, 1)
    assert not [key for key in old if key.startswith(("log.cleaner", "delete.", "listeners"))]
    new = settings("0.9.0.1", Listeners(9092, 9999, ssl_port=9093))
    assert new["listeners"] == "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093"
    assert new["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9999,SSL://127.0.0.1:9093"
    assert not {"listener.security.protocol.map", "log.retention.ms"} & new.keys()
    sasl = settings("0.9.0.1", Listeners(9092, 9999, sasl_port=9093, sasl_ssl_port=9094))
    assert sasl["advertised.listeners"] == (
        "PLAINTEXT://127.0.0.1:9999,SASL_PLAINTEXT://localhost:9093,SASL_SSL://localhost:9094"
    )
    internal = settings("3.9.1", Listeners(9092, 9999, internal_port=9094))
    assert internal["inter.broker.listener.name"] == "INTERNAL"
    assert internal["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"
    assert internal["log.retention.ms"] == -1
    controller = settings("4.1.0", Listeners(9092, 9999, controller_port=9096))
    assert controller["controller.quorum.voters"] == "0@127.0.0.1:9095,1@127.0.0.1:9096"


def test_versions_compare_as_numbers() -> None:
    assert find_version("0.10.2.2").number > find_version("0.9.0.1").number


def test_properties_file_round_trip() -> None:
    assert render({"a": True, "b": 1, "c": r"x\y"}) == "a=true\nb=1\nc=x\\\\y\n"


def test_unstarted_cluster_raises() -> None:
    cluster = RealCluster("0.8.2.2")
    for use in (lambda: cluster.bootstrap_servers, lambda: cluster.kill(0), lambda: cluster.folder):
        with pytest.raises(HarnessError, match="not started"):
            use()
    cluster.close()
    with pytest.raises(HarnessError, match="unknown nodes"):
        RealCluster("0.8.2.2", advertised={7: 1234})
    with pytest.raises(UnsupportedByBrokerError):
        RealCluster("0.8.1.1", ssl=True)


def test_harness_does_not_import_the_client() -> None:
    # The harness judges the client and must not share its bugs: of the package it has only how a
    # port is listened to, which no client does.
    code = "import sys, tests.brokers.fixtures, tests.brokers.proxy, tests.brokers.__main__;"
    code += "print(*(name for name in sys.modules if name.startswith('aiokafka08')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    core = "aiokafka08._core"
    listening = {f"{core}.server", f"{core}.server.listening"}
    assert set(done.stdout.split()) == {"aiokafka08", core, f"{core}.lazy", *listening}
