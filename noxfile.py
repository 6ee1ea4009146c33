"""The sessions of this project. `nox -s tests` is all of CI; `nox` alone runs lint and types.

    nox -s fast                                 after each change: lint and tests, Python only
    nox -s tests -- tests/protocol -k crc       pytest only, with these arguments
    nox -s tests                                all checks, on the Python that runs nox
    nox -s full                                 both loops, all lines, other Pythons, build
    nox -s demo                                 the whole client on the embedded cluster
    nox -s docs                                 the documentation, as a site in build/docs

`nox -l` lists the others: campaigns and benchmarks (`tests/tools/sessions_campaigns.py`), and
release engineering (`tests/tools/sessions_release.py`). Most have options: `nox -s NAME -- --help`.

Add `-R` to reuse the environment as it is. After a change to a .pyx leave it out: the installation
compiles.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import nox

# nox runs in this folder, but doesn't import from it.
sys.path.insert(0, str(Path(__file__).parent))

from examples.demo.user_settings import forget_user_settings
from tests.tools.sessions import (
    IN_UNITS,
    PARALLEL,
    PROJECT,
    PYTHONS,
    environment,
    fetch_programs,
    install,
    installed_pythons,
    paths_marked,
    pytest_of,
    run_pytest,
    selection,
)

forget_user_settings()

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types"]
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True

CODE = [path for path in ("aiokafka08", "tests", "examples") if Path(path).exists()]

# The twins know as little of loops as the compiled modules, and of lines only the format of
# messages: 0.8.2 and 0.10 have one each.
TWINS = (
    *selection("twins", "not real"),
    *("--loop=asyncio", "-k", "not embedded_0.8.0 and not embedded_0.8.1 and not embedded_0.9"),
)
"""What runs once more on the pure twins. The tests of the message set itself always run on both."""

TYPES = (("mypy", *CODE), ("basedpyright",))
"""Check the types of all Python code, and those that a program sees."""

SEEDS = 2000
SEEDS_OF_A_PYTHON = 300
"""Seeds of the mixed scenario: in `full` in all, and on each Python. The first Python's are tests:
a part in `tests`, the others in `rounds`, which runs the rest too, with numbers behind those of all
`PYTHONS`."""


def run_lint(session: nox.Session) -> None:
    """Run the commands of .pre-commit-config.yaml."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("cython-lint", "aiokafka08")
    session.run("lint-imports")
    session.run(
        "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "examples/bridge/docker-compose.yml",
    )
    session.run("towncrier", "build", "--draft")


def run_types(session: nox.Session) -> None:
    """Run `TYPES`."""
    for command in TYPES:
        session.run(*command)


@contextlib.contextmanager
def beside(session: nox.Session, *commands: Sequence[str], twin: str) -> Iterator[None]:
    """Run commands beside the block, one behind the other; print at the end what they printed.

    Run behind the block, they would use only one of the two cores for a part of the time.
    """
    script = " && ".join(map(shlex.join, commands))
    path = os.pathsep.join([session.bin, os.environ["PATH"]])
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            ["sh", "-ec", script],
            env={**os.environ, "PATH": path, **environment(twin)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            code = process.wait()
            output.seek(0)
            print(output.read(), flush=True)
    if code:
        session.error(f"exit code {code}: {script}")


def seeds(first: int, count: int) -> tuple[str, ...]:
    """Return the command that runs seeds of the mixed scenario, on two cores."""
    options = (f"--first={first}", f"--seeds={count}", "--jobs=2")
    return ("python", "-m", "tests.faults.simulation", *options)


def archive_spark(session: nox.Session) -> None:
    """Write the archive of Spark's classes, unless the environment has it: 35 to 55 CPU-s, once.

    With it a JVM of Spark starts with 3 in place of 8 CPU-s.
    """
    session.run("python", "-m", "tests.spark.class_archive")


@nox.session
def lint(session: nox.Session) -> None:
    """Run ruff, codespell, cython-lint, import-linter, check-jsonschema and towncrier."""
    install(session, "lint", project=False)
    run_lint(session)


@nox.session
def fast(session: nox.Session) -> None:
    """Run lint and the tests marked `fast`, of the pure twins, in two minutes. `-- PATHS`: these.

    It needs neither Java nor a compiler: the package isn't installed.
    """
    install(session, "fast", "lint", project=False)
    session.install(*PROJECT["project"]["dependencies"])
    if not session.posargs:
        run_lint(session)
    # The plugin as if installed; the installation of another session may leave its entry point.
    plugin = ("-p", "no:aiokafka08", "-p", "aiokafka08.testing.pytest_plugin")
    selected = session.posargs or ("--numprocesses=3", *IN_UNITS, *selection("fast", "not real"))
    found = {"PYTHONPATH": str(Path.cwd()), "AIOKAFKA08_NO_REAL_BROKERS": "1"}
    session.run(*pytest_of(*plugin, *selected), env=environment("python") | found)


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy, strict for the package, and basedpyright."""
    install(session, "test", "types")
    run_types(session)


@nox.session
def tests(session: nox.Session) -> None:
    """Run all of CI: lint, types, pytest with real brokers. With arguments: pytest only."""
    if session.posargs:
        install_for_tests(session)
        run_pytest(session, *session.posargs)
        return
    install(session, "lint", "types", "test")
    run_lint(session)
    fetch_programs(session)
    archive_spark(session)
    with beside(session, *TYPES, pytest_of(*TWINS), twin="python"):
        run_pytest(session, *PARALLEL)


def install_for_tests(session: nox.Session) -> None:
    """Install what the tests named by the arguments need, and print pip's progress."""
    paths = [Path(one.partition("::")[0]) for one in session.posargs if one.startswith("tests")]
    heavy = [Path(path) for path in paths_marked("heavy")]
    light = paths and not any(
        one == path or one in path.parents or path in one.parents for one in heavy for path in paths
    )
    session.log(
        "Installing what tests of the client need, without Spark"
        if light
        else "Installing what all tests need, Spark too: that takes minutes"
    )
    install(session, "test-client" if light else "test", silent=False)


@nox.session(venv_backend="none")
def full(session: nox.Session) -> None:
    """Run `matrix` on a Python, `interpreter` on others found; then `fuzz`, `rounds`, `build`."""
    found = installed_pythons()
    if not found:
        session.error(f"no Python found: expected one of {', '.join(PYTHONS)} on PATH")
    for version in PYTHONS:
        if version not in found:
            session.warn(f"Python {version} skipped: not found on PATH")
    session.notify(f"matrix-{found[0]}", session.posargs)
    for version in found[1:]:
        session.notify(f"interpreter-{version}", session.posargs)
    session.notify("fuzz")
    session.notify("rounds")
    session.notify("build")


@nox.session(python=PYTHONS)
def matrix(session: nox.Session) -> None:
    """Run the checks of `tests`, with each asynchronous test on both event loops, on all lines."""
    install(session, "lint", "types", "test")
    run_lint(session)
    fetch_programs(session)
    archive_spark(session)
    with beside(session, *TYPES, pytest_of(*selection("client", "not real")), twin="python"):
        run_pytest(session, *PARALLEL, "--loop=both", "--all-lines", *session.posargs)


@nox.session(python=PYTHONS)
def interpreter(session: nox.Session) -> None:
    """Run what a Python version may change.

    That is all but most tests on real brokers: a version changes none of the bytes that they get.
    Each version has seeds of its own.
    """
    install(session, "test")
    fetch_programs(session)
    archive_spark(session)
    selected = ("-m", "not real or spark", "-k", "not test_no_seed_shows_an_anomaly")
    with beside(session, pytest_of(*TWINS), twin="python"):
        run_pytest(session, *PARALLEL, *selected, *session.posargs)
        run_pytest(session, *PARALLEL, *selection("each_python", "real"), *session.posargs)
    number = PYTHONS.index(str(session.python))
    session.run(*seeds(number * SEEDS_OF_A_PYTHON, SEEDS_OF_A_PYTHON))


@nox.session
def rounds(session: nox.Session) -> None:
    """Run the other tests that are marked `full`, and the other seeds."""
    install(session, "test")
    fetch_programs(session)
    archive_spark(session)
    run_pytest(session, *PARALLEL, "--full", "-m", "full", "--ignore=tests/protocol")
    # Not beside the tests: Spark gives a Python worker 10 s to connect, whatever the machine does.
    ran = len(installed_pythons()) * SEEDS_OF_A_PYTHON
    session.run(*seeds(len(PYTHONS) * SEEDS_OF_A_PYTHON, SEEDS - ran))


@nox.session
def demo(session: nox.Session) -> None:
    """Send Python's source through Kafka and Spark, verify and plot it. `-- --help`."""
    # Check the options first, with the Python that runs nox: the installation takes a minute.
    options = [sys.executable, "-m", "examples.demo.options", *session.posargs]
    session.run(*options, external=True)
    if {"-h", "--help"} & set(session.posargs):
        return
    session.log("Client and matplotlib, unless installed: 55 MB to download, 200 MB on disk")
    install(session, "demo")
    if "--no-spark" not in session.posargs:
        session.log("Spark, unless installed: 510 MB to download, 690 MB on disk; `-- --no-spark`")
        install(session, "demo-spark", project=False)
    # On Ctrl-C it stops its cluster itself.
    session.run("python", "-m", "examples.demo", *session.posargs, interrupt_timeout=10.0)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/docs. `-- --linkcheck` checks the links to other sites."""
    install(session, "docs")
    options = ["-W", "--keep-going", "--quiet"]
    if "--linkcheck" in session.posargs:
        session.run("sphinx-build", *options, "-b", "linkcheck", "docs", "build/linkcheck")
        return
    session.run("sphinx-build", *options, "-b", "html", "docs", "build/docs")
    session.log(f"Open {Path('build/docs/index.html').resolve()}")


# Their sessions register themselves; last, so that `nox -l` begins with those above.
for name in ("campaigns", "release"):
    importlib.import_module(f"tests.tools.sessions_{name}")
