"""`examples/group_worker.py` in a process of its own, which tests kill and pause."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.brokers import RealCluster
from tests.support.names import unique_name
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "group_worker.py"


class Worker:
    """A worker that prints each message and then commits.

    Args:
        options: further options of the command line.

    Attributes:
        client_id: the name that its group's coordinator knows it by.
    """

    def __init__(
        self, cluster: RealCluster, group: str, topic: str, folder: Path, *options: str
    ) -> None:
        self._printed = folder / f"worker-{unique_name()}"
        command = ["--bootstrap", cluster.bootstrap_servers, "--topic", topic, "--group", group]
        with self._printed.open("w") as stdout:
            self.process = subprocess.Popen(
                [sys.executable, str(EXAMPLE), *command, *options],
                stdout=stdout,
                stderr=subprocess.STDOUT,
                cwd=EXAMPLE.parents[1],
            )

        self.client_id = f"{group}-{self.process.pid}"

    @property
    def text(self) -> str:
        """Everything that it has printed."""
        return self._printed.read_text()

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
