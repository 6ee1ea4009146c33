"""What can be run on this project. `nox -s tests` is all of CI; `nox` alone runs lint and types.

    nox -s tests                                everything, on the Python that runs nox
    nox -s tests -- tests/protocol -k crc       pytest only, with these arguments
    nox -s full                                 every Python found, both loops, many rounds, build
    nox -s bench -- --quick                     beside the peers, on a real broker, in two minutes
    nox -s bench -- --ours --before DIR         beside another checkout of this repository
    nox -s bench -- --output docs/benchmarks    all of it, with growth; writes the docs
    nox -s fuzz                                 hostile bytes, many more than in `tests`
    nox -s sanitize                             the compiled modules on hostile bytes, with gcc
    nox -s demo                                 the whole client on the embedded cluster
    nox -s demo -- --bootstrap localhost:9092   the same on a real one

Add `-R` to run without installing again (not after a change to a .pyx: installing compiles it).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types"]
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
PARALLEL = ("--numprocesses=3", "--dist=worksteal")
"""Most tests wait for brokers more than they compute. Each process has its own brokers."""

PURE = ("-m", "not real", "tests/contract/client", "tests/consumer", "tests/producer")
"""What goes through the message set runs once more on the pure twin, without real brokers; the
tests of the message set itself run for both twins in any case."""

CODE = [path for path in ("aiokafka08", "tests", "examples") if Path(path).exists()]


def install(session: nox.Session, *groups: str, project: bool = True) -> None:
    # Not pip's --group: the pip of Python 3.11 doesn't have it.
    requirements = nox.project.dependency_groups(PROJECT, *groups)
    session.install(*(["-e", "."] if project else []), *requirements)


def run_lint(session: nox.Session) -> None:
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


def run_types(session: nox.Session) -> None:
    session.run("mypy", *CODE)


def run_pytest(session: nox.Session, *arguments: str, twin: str = "c") -> None:
    """On the compiled twin of the message set, which fails where it couldn't be built, or on the
    pure one."""
    session.run("python", "-m", "pytest", *arguments, env={"AIOKAFKA08_IMPL": twin})


def run_pytest_in_parallel(session: nox.Session, *arguments: str, twin: str = "c") -> None:
    """Side by side; what fails there runs once more, alone.

    On two cores that are busy with brokers a test may be starved beyond its deadline. The first
    summary names those that passed only when they had the machine to themselves. For `tests` only:
    `full` is there to find them."""
    try:
        run_pytest(session, *PARALLEL, *arguments, twin=twin)
    except CommandFailed:
        session.warn("What failed runs once more, alone")
        run_pytest(session, "--last-failed", *arguments, twin=twin)


def fetch_brokers(session: nox.Session) -> None:
    """Once on a machine: no test's timeout has to allow for a download."""
    if os.environ.get("AIOKAFKA08_NO_REAL_BROKERS") != "1":
        session.run("python", "-m", "tests.brokers", "--fetch")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff (rules and format) and the import contracts."""
    install(session, "lint", project=False)
    run_lint(session)


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict on the package."""
    install(session, "test", "types")
    run_types(session)


@nox.session
def tests(session: nox.Session) -> None:
    """All of CI: lint, types, then pytest with real brokers. With arguments: pytest only."""
    if session.posargs:
        install(session, "test")
        run_pytest(session, *session.posargs)
        return
    install(session, "lint", "types", "test")
    run_lint(session)
    run_types(session)
    fetch_brokers(session)
    run_pytest_in_parallel(session)
    run_pytest_in_parallel(session, *PURE, twin="python")


@nox.session(venv_backend="none")
def full(session: nox.Session) -> None:
    """The whole matrix: `matrix` on each Python found, then `fuzz`, `rounds` and `build`."""
    found = [version for version in PYTHONS if works(f"python{version}")]
    if not found:
        session.error(f"none of Python {', '.join(PYTHONS)} was found on PATH")
    for version in PYTHONS:
        if version in found:
            session.notify(f"matrix-{version}", session.posargs)
        else:
            session.warn(f"Skipped: Python {version} wasn't found on PATH")
    session.notify("fuzz")
    session.notify("rounds")
    session.notify("build")


@nox.session(python=PYTHONS)
def matrix(session: nox.Session) -> None:
    """Everything `tests` does, each asynchronous test on both loops."""
    install(session, "lint", "types", "test")
    run_lint(session)
    run_types(session)
    fetch_brokers(session)
    run_pytest(session, *PARALLEL, "--loop=both", *session.posargs)
    run_pytest(session, *PARALLEL, *PURE, twin="python")


@nox.session
def fuzz(session: nox.Session) -> None:
    """The protocol's tests with many more examples, mutated frames and mutated sets among them."""
    install(session, "test")
    run_pytest(session, *PARALLEL, "--full", "tests/protocol", *session.posargs)


@nox.session
def rounds(session: nox.Session) -> None:
    """The other tests that are marked `full`."""
    install(session, "test")
    fetch_brokers(session)
    run_pytest(session, *PARALLEL, "--full", "-m", "full", "--ignore=tests/protocol")


def works(python: str) -> bool:
    """Whether the command is there and runs: a version manager's shim may do neither."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@nox.session
def bench(session: nox.Session) -> None:
    """This client and its peers on real brokers, side by side, then growth. `-- --help`."""
    install(session, "bench")
    if "--spark" in session.posargs:
        bench_spark(session, *(one for one in session.posargs if one != "--spark"))
        return
    fetch_brokers(session)
    # It ends its brokers by itself on Ctrl-C; nox's own patience is 0.3 s.
    session.run("python", "-m", "tests.bench", *session.posargs, interrupt_timeout=30.0)


def bench_spark(session: nox.Session, *arguments: str) -> None:
    """The data source beside Spark's own instead: `nox -s bench -- --spark --help`."""
    fetch_brokers(session)
    # It ends Spark and its brokers by itself.
    session.run("python", "-m", "tests.bench.spark", *arguments, interrupt_timeout=30.0)


@nox.session
def demo(session: nox.Session) -> None:
    """Python's own source through Kafka, back, and into Spark, verified, drawn. `-- --help`."""
    install(session, "demo")
    # It too ends by itself on Ctrl-C.
    session.run(
        "python",
        "-m",
        "examples.demo",
        *session.posargs,
        interrupt_timeout=10.0,
    )


@nox.session
def sanitize(session: nox.Session) -> None:
    """The compiled modules under gcc's address and undefined-behaviour sanitizers."""
    install(session, "test", project=False)
    session.install(*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"])
    flags = "-fsanitize=address,undefined -fno-omit-frame-pointer -O1 -g"
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    with tempfile.TemporaryDirectory() as folder:  # not in place: other sessions use what is there
        for name in ("aiokafka08", "tests"):
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
                # Memory is measured there, which the sanitizer changes.
                *("-k", "not python and not bomb and not memory and not real"),
                *("tests/protocol", "tests/producer/test_producer.py"),
                *("tests/producer/test_delivery.py", "tests/producer/test_send_arrow.py"),
                env={
                    "AIOKAFKA08_IMPL": "c",
                    "LD_PRELOAD": " ".join(libraries),
                    "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own
                    "PYTHONMALLOC": "malloc",
                },
            )


@nox.session
def build(session: nox.Session) -> None:
    """sdist and wheel, checked; the wheel installed and used away from here, without extras."""
    install(session, "build", project=False)
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", "dist")
    artifacts = sorted(str(path.resolve()) for path in Path("dist").iterdir())
    session.run("twine", "check", "--strict", *artifacts)
    [wheel] = [path for path in artifacts if path.endswith(".whl")]
    users_test = Path("examples/test_my_service.py").resolve()
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run("python", "-m", "venv", "venv")
        scripts = Path(folder, "venv", "Scripts" if os.name == "nt" else "bin")
        python = str(scripts / "python")
        session.run(python, "-m", "pip", "install", "--quiet", wheel, "pytest", external=True)
        session.run(python, "-W", "error", "-c", CHECK_INSTALLED, folder, external=True)
        shutil.copy(users_test, folder)  # away from this project's configuration
        session.run(python, "-m", "pytest", "-W", "error", users_test.name, external=True)


CHECK_INSTALLED = """
import importlib.metadata, importlib.resources, pathlib, sys
import aiokafka08
assert pathlib.Path(aiokafka08.__file__).is_relative_to(pathlib.Path(sys.argv[1]).resolve())
assert importlib.resources.files(aiokafka08).joinpath("py.typed").is_file()
assert importlib.metadata.version("aiokafka08") == aiokafka08.__version__
print("aiokafka08", aiokafka08.__version__, "from", aiokafka08.__file__)
"""
