"""Sessions of campaigns and measurements: fuzzing, simulation, planted bugs, soak, the benchmark.

They run as long as one lets them; CI runs only `fuzz`, as a part of `full`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import nox

from tests.tools.sessions import PARALLEL, PROJECT, fetch_brokers, install, run_pytest


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run a campaign of mutated frames and sets: `-- --help`. Without options, tests too."""
    install(session, "test-client", "fuzz")
    if not session.posargs:
        run_pytest(session, *PARALLEL, "--full", "tests/protocol")
    session.run("python", "-m", "tests.tools.fuzz", *session.posargs)


@nox.session
def simulate(session: nox.Session) -> None:
    """Run seeds of the mixed scenario in virtual time: `-- --help` lists the options."""
    install(session, "test-client")
    session.run("python", "-m", "tests.faults.simulation", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Run clients beside real brokers that are killed; all gauges stay flat: `-- --help`."""
    install(session, "test-client")
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself.
    session.run("python", "-m", "tests.tools.soak", *session.posargs, interrupt_timeout=30.0)


@nox.session
def differential(session: nox.Session) -> None:
    """Compare embedded and real brokers on random requests: `-- --help` lists the options."""
    install(session, "test-client")
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself.
    session.run(
        "python", "-m", "tests.tools.differential", *session.posargs, interrupt_timeout=30.0
    )


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant bugs, one at a time, and let simulated seeds find them: `-- --help`."""
    install(session, "test-client")
    session.run("python", "-m", "tests.tools.mutants", *session.posargs)


@nox.session
def mutation(session: nox.Session) -> None:
    """Change code at random places and list the changes that no test finds: `-- --help`."""
    install(session, "test-client", "mutation")
    session.run("python", "-m", "tests.tools.mutation", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure this client and its peers on real brokers, then growth. `-- --help`."""
    install(session, "bench")
    if "--spark" in session.posargs:
        bench_spark(session, *(option for option in session.posargs if option != "--spark"))
        return
    if "--bridge" in session.posargs:
        bench_bridge(session, *(option for option in session.posargs if option != "--bridge"))
        return
    if "--gateway" in session.posargs:
        bench_gateway(session, *(option for option in session.posargs if option != "--gateway"))
        return
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself, which takes longer than the 0.3 s that nox waits.
    session.run("python", "-m", "tests.tools.bench", *session.posargs, interrupt_timeout=30.0)


def bench_spark(session: nox.Session, *arguments: str) -> None:
    """Measure the data source beside Spark's own: `nox -s bench -- --spark --help`."""
    fetch_brokers(session)
    # On Ctrl-C it stops Spark and its brokers itself.
    session.run("python", "-m", "tests.tools.bench.spark", *arguments, interrupt_timeout=30.0)


def bench_bridge(session: nox.Session, *arguments: str) -> None:
    """Measure the bridge beside MirrorMaker 2: `nox -s bench -- --bridge --help`."""
    session.install(*nox.project.dependency_groups(PROJECT, "test-client"))
    # On Ctrl-C it stops its brokers itself.
    session.run("python", "-m", "tests.tools.bench.bridge", *arguments, interrupt_timeout=30.0)


def bench_gateway(session: nox.Session, *arguments: str) -> None:
    """Measure the gateway beside a plain relay: `nox -s bench -- --gateway --help`."""
    session.install(*nox.project.dependency_groups(PROJECT, "test-client"))
    session.run("python", "-m", "tests.tools.bench.gateway", *arguments, interrupt_timeout=30.0)


@nox.session(name="bridge-rounds")
def bridge_rounds(session: nox.Session) -> None:
    """Kill a bridge, and brokers of both sides, again and again: `-- --help`."""
    install(session, "test-client")
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself.
    session.run(
        "python", "-m", "tests.tools.bridge_rounds", *session.posargs, interrupt_timeout=30.0
    )


@nox.session
def sanitize(session: nox.Session) -> None:
    """Test the compiled modules under gcc's address and undefined-behaviour sanitizers."""
    install(session, "test", project=False)
    session.install(*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"])
    flags = "-fsanitize=address,undefined -fno-omit-frame-pointer -O1 -g"
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    with tempfile.TemporaryDirectory() as folder:  # other sessions use the modules built in place
        for name in ("aiokafka08", "examples", "tests"):
            ignore = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(name, Path(folder, name), ignore=ignore)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(name, folder)
        with session.chdir(folder):
            session.run(
                *("python", "-c", "import setuptools; setuptools.setup()", "build_ext", "-i"),
                env={"CFLAGS": flags, "LDFLAGS": flags},
            )
            session.run(
                *("python", "-m", "pytest", "-p", "no:cacheprovider", "--timeout=600"),
                # These tests measure memory, which the sanitizers change.
                *("-k", "not python and not bomb and not memory and not real"),
                *("tests/protocol", "tests/producer/test_producer.py"),
                *("tests/producer/test_batch_delivery.py", "tests/producer/test_send_arrow.py"),
                "tests/bridge/test_producing.py",
                env={
                    "AIOKAFKA08_IMPL": "c",
                    "LD_PRELOAD": " ".join(libraries),
                    "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself leaks
                    "PYTHONMALLOC": "malloc",
                },
            )
