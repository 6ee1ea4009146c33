"""Compare what older clients get from the embedded "0.10" and from a real 0.10.2.2.

    python -m tests.conformance.foreign.older_clients                     all but those in Go
    python -m tests.conformance.foreign.older_clients --client sarama-1.29.1

The programs are in `programs`: produce, compress, list offsets, seek, small fetches, groups of one
and two members, commits, and, where the client can, create and delete topics. The clients are
installed in a temporary folder. Those in Go take minutes to compile, and need Go.

Exit code 1: a client has got something else from the embedded cluster; the steps are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from aiokafka08.testing import EmbeddedCluster
from tests.brokers import RealCluster
from tests.support.names import unique_name

RELEASE: Final = "0.10.2.2"
PROGRAMS: Final = Path(__file__).parent / "programs"
_PATIENCE_S: Final = 300.0


class Client(NamedTuple):
    """A client: its program, and what it needs."""

    program: str
    packages: tuple[str, ...] = ()
    """Those of PyPI; a client in Go has a `go.mod`."""
    below: tuple[int, int] = (4, 0)
    """The first Python with which it doesn't work."""


_AIOKAFKA: Final = ("kafka-python==2.0.2", "packaging", "async-timeout")
CLIENTS: Final[Mapping[str, Client]] = {
    "kafka-python-1.4.7": Client("kafka_python_steps.py", ("kafka-python==1.4.7",), (3, 12)),
    "kafka-python-2.0.2": Client("kafka_python_steps.py", ("kafka-python==2.0.2",), (3, 12)),
    "kafka-python-2.2.21": Client("kafka_python_steps.py", ("kafka-python==2.2.21",)),
    "aiokafka-0.7.2": Client("aiokafka_steps.py", ("aiokafka==0.7.2", *_AIOKAFKA), (3, 11)),
    "aiokafka-0.8.1": Client("aiokafka_steps.py", ("aiokafka==0.8.1", *_AIOKAFKA), (3, 12)),
    "sarama-1.29.1": Client("sarama"),
    "kafka-go-0.4.47": Client("kafka_go"),
}


def install(client: Client, folder: Path) -> list[str]:
    """Install a client; return the command that runs its program."""
    program = PROGRAMS / client.program
    if not client.packages:
        source = folder / client.program
        source.mkdir()
        for name in ("main.go", "go.mod"):
            (source / name).write_text((program / name).read_text())
        for command in (("go", "mod", "tidy"), ("go", "build", "-o", "program", ".")):
            subprocess.run(command, cwd=source, check=True)
        return [str(source / "program")]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder))
    subprocess.run([*pip, *client.packages], check=True)
    return [sys.executable, str(program)]


async def steps(command: list[str], servers: str, folder: Path) -> list[str]:
    """Run a program on a cluster; return what it printed, and its error if it failed."""
    process = await asyncio.create_subprocess_exec(
        *(*command, servers, folder.name.replace("_", "-"), "auto"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), _PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    failure = errors.decode(errors="replace").splitlines()[-1:] if process.returncode else []
    return out.decode().splitlines() + failure


async def compare(name: str, real_servers: str, folder: Path) -> tuple[list[str], list[str]]:
    """Return the steps of a client on the real cluster, and on an embedded one."""
    command = await asyncio.to_thread(install, CLIENTS[name], folder)
    async with EmbeddedCluster(version="0.10", default_partitions=3) as embedded:
        real, ours = await asyncio.gather(
            steps(command, real_servers, folder),
            steps(command, embedded.bootstrap_servers, folder),
        )
    return real, ours


async def _compare_all(names: list[str]) -> bool:
    equal = True
    with RealCluster(RELEASE, 1) as real:
        for name in names:
            with tempfile.TemporaryDirectory(prefix=unique_name("aiokafka08-")) as folder:
                theirs, ours = await compare(name, real.bootstrap_servers, Path(folder))
            rows = difflib.unified_diff(theirs, ours, f"real {RELEASE}", "embedded", lineterm="")
            changed = list(rows)
            print(f"{name}: {len(theirs)} steps, {'different' if changed else 'equal'}")
            print("\n".join(changed), end="\n" if changed else "", flush=True)
            equal &= not changed
    return equal


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.foreign.older_clients")
    parser.add_argument("--client", action="append", choices=list(CLIENTS), help="may be repeated")
    usable = [
        name
        for name, client in CLIENTS.items()
        if client.packages and sys.version_info[:2] < client.below
    ]
    names = parser.parse_args().client or usable
    return 0 if asyncio.run(_compare_all(names)) else 1


if __name__ == "__main__":
    sys.exit(main())
