"""kcat's own test scripts run with `aiokafka08 kcat`, on real brokers that kcat can't detect.

The scripts are those of kcat, in the folder `kcat` with their licence.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests._tools.cli.conftest import command_line
from tests.brokers.fixtures import BrokerClusters
from tests.support.full import in_full
from tests.support.paths import ROOT

FOLDER = Path(__file__).parent / "kcat"
SCRIPTS = ("0001-exit_eof", "0002-delim", "0004-piped_producer")


def start(script: str, bootstrap: str, zookeeper: str) -> subprocess.Popen[bytes]:
    """Start a script in a terminal, since kcat consumes if stdin is one."""
    words = command_line("kcat", "-b", bootstrap, "-X", f"zookeeper.connect={zookeeper}")
    environment = {
        **os.environ,
        "BROKERS": bootstrap,
        "KCAT": shlex.join(words),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        ["script", "-qec", f"bash {script}.sh", "/dev/null"],
        cwd=FOLDER,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.real
@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", ["0.8.2.2", *in_full("0.9.0.1")])
def test_kcat_scripts_pass_on_brokers_before_0_10(
    version: str, broker_clusters: BrokerClusters
) -> None:
    """They mostly wait for timeouts of their own, so all run at the same time."""
    for tool in ("script", "jq", "bash", "timeout"):
        assert shutil.which(tool), (
            f"kcat's scripts need {tool}: install it (apt-get install {tool})"
        )
    cluster = broker_clusters.get(version)
    running = {
        script: start(script, cluster.bootstrap_servers, cluster.zookeeper_connect)
        for script in SCRIPTS
    }
    try:
        ended = {name: process.communicate(timeout=90) for name, process in running.items()}
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    failed = {
        name: ended[name][0].decode(errors="replace")
        for name, process in running.items()
        if process.returncode
    }
    assert not failed
