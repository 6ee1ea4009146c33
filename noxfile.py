"""The sessions of this project. `nox -s tests` is all of CI; `nox` alone runs lint and types.

    nox -s tests                                all checks, on the Python that runs nox
    nox -s tests -- tests/protocol -k crc       pytest only, with these arguments
    nox -s lint types                           ruff, codespell, cython-lint, import-linter; types
    nox -s full                                 each Python found, both event loops, build
    nox -s bench -- --quick                     this client beside its peers, in two minutes
    nox -s bench -- --ours --before DIR         this checkout beside another one
    nox -s bench -- --output docs/benchmarks    the whole benchmark; writes the pages in docs/
    nox -s differential -- --seeds 500          embedded and real brokers on random requests
    nox -s simulate -- --seeds 1000 --jobs 2    the mixed scenario in virtual time, by seed
    nox -s mutants                              plant bugs; each must be found by a seed
    nox -s fuzz                                 many more hostile bytes than in `tests`
    nox -s sanitize                             the compiled modules on hostile bytes, with gcc
    nox -s demo                                 the whole client on the embedded cluster
    nox -s demo -- --bootstrap localhost:9092   the same on a real cluster
    nox -s demo -- --no-spark                   the same without Spark, which is not installed
    nox -s bench -- --bridge                    the bridge beside MirrorMaker 2
    nox -s bridge-rounds -- --rounds 20         kill a bridge and its clusters; nothing may be lost
    nox -s changelog                            the next release's notes

Add `-R` to reuse the environment as it is. After a change to a .pyx leave it out: the installation
compiles.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types"]
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
PARALLEL = ("--numprocesses=3", "--dist=worksteal")
"""Three processes on two cores: many tests wait for brokers. `tests/schedule.py` decides which
process runs the tests of a broker version."""

PURE = ("-m", "not real", "tests/contract/client", "tests/consumer", "tests/producer")
"""The tests that run once more on the pure twins, without real brokers. The tests of the message
set itself always run for both twins."""

WITHOUT_SPARK = tuple(
    f"tests/{name}"
    for name in (
        "admin", "bridge", "brokers", "chaos", "cli", "concurrency", "consumer", "contract",
        "coordinator",
        "differential", "failover", "history", "membership", "monitoring", "mutants", "net",
        "offset_store", "producer", "protocol", "simulation",
        "testing", "zookeeper",
    )
)  # fmt: skip
"""Folders of tests that need neither Spark nor the demo's packages."""

CODE = [path for path in ("aiokafka08", "tests", "examples") if Path(path).exists()]


def install(session: nox.Session, *groups: str, project: bool = True, silent: bool = True) -> None:
    """Install dependency groups, and this project in place."""
    # The pip of Python 3.11 has no --group.
    requirements = nox.project.dependency_groups(PROJECT, *groups)
    session.install(*(["-e", "."] if project else []), *requirements, silent=silent)


def run_lint(session: nox.Session) -> None:
    """Run the commands of .pre-commit-config.yaml."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("cython-lint", "aiokafka08")
    session.run("lint-imports")
    session.run("towncrier", "build", "--draft")


def run_types(session: nox.Session) -> None:
    """Check the types of all Python code, and by basedpyright those that a program sees."""
    session.run("mypy", *CODE)
    session.run("basedpyright")


def run_pytest(session: nox.Session, *arguments: str, twin: str = "c") -> None:
    """Run pytest on one twin; with the compiled one it fails if that couldn't be built."""
    # Without cached bytecode each process of the tests would compile the package again.
    env = {"AIOKAFKA08_IMPL": twin, "PYTHONDONTWRITEBYTECODE": ""}
    session.run("python", "-m", "pytest", *arguments, env=env)


def fetch_brokers(session: nox.Session) -> None:
    """Download the brokers before the tests, so that no test's timeout includes a download."""
    if os.environ.get("AIOKAFKA08_NO_REAL_BROKERS") != "1":
        session.run("python", "-m", "tests.brokers", "--fetch")


def fetch_kcat(session: nox.Session) -> None:
    """Install Debian's kcat, beside which tests run `aiokafka08 kcat`, where that is possible.

    Elsewhere these tests are skipped, and say so.
    """
    if shutil.which("kcat") or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    for command in (("update", "-q"), ("install", "-y", "-q", "kcat", "jq")):
        session.run("apt-get", *command, external=True, silent=True, success_codes=[0, 100])


@nox.session
def lint(session: nox.Session) -> None:
    """Run ruff, codespell, cython-lint, import-linter, and towncrier on the fragments."""
    install(session, "lint", project=False)
    run_lint(session)


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
    run_types(session)
    fetch_brokers(session)
    fetch_kcat(session)
    run_pytest(session, *PARALLEL)
    # `full` runs these on both loops and all lines. The twins know as little of loops as the
    # compiled modules, and of lines only the format of messages: 0.8.2 and 0.10 have one each.
    lines = "not embedded_0.8.0 and not embedded_0.8.1 and not embedded_0.9"
    run_pytest(session, *PARALLEL, *PURE, "--loop=asyncio", "-k", lines, twin="python")


def install_for_tests(session: nox.Session) -> None:
    """Install what the tests named by the arguments need, and print pip's progress."""
    paths = [one.partition("::")[0] for one in session.posargs if one.startswith("tests")]
    light = paths and all(path.startswith(WITHOUT_SPARK) for path in paths)
    session.log(
        "Installing what tests of the client need, without Spark"
        if light
        else "Installing what all tests need, Spark too: that takes minutes"
    )
    install(session, "test-client" if light else "test", silent=False)


@nox.session(venv_backend="none")
def full(session: nox.Session) -> None:
    """Run `matrix` on each Python found, then `fuzz`, `rounds` and `build`."""
    found = [version for version in PYTHONS if works(f"python{version}")]
    if not found:
        session.error(f"no Python found: expected one of {', '.join(PYTHONS)} on PATH")
    for version in PYTHONS:
        if version in found:
            session.notify(f"matrix-{version}", session.posargs)
        else:
            session.warn(f"Python {version} skipped: not found on PATH")
    session.notify("fuzz")
    session.notify("rounds")
    session.notify("build")


@nox.session(python=PYTHONS)
def matrix(session: nox.Session) -> None:
    """Run the checks of `tests`, with each asynchronous test on both event loops."""
    install(session, "lint", "types", "test")
    run_lint(session)
    run_types(session)
    fetch_brokers(session)
    run_pytest(session, *PARALLEL, "--loop=both", *session.posargs)
    run_pytest(session, *PARALLEL, *PURE, twin="python")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run the protocol's tests with many more examples, mutated frames and mutated sets."""
    install(session, "test")
    run_pytest(session, *PARALLEL, "--full", "tests/protocol", *session.posargs)


@nox.session
def simulate(session: nox.Session) -> None:
    """Run seeds of the mixed scenario in virtual time: `-- --help` lists the options."""
    install(session, "test-client")
    session.run("python", "-m", "tests.simulation", *session.posargs)


@nox.session
def differential(session: nox.Session) -> None:
    """Compare embedded and real brokers on random requests: `-- --help` lists the options."""
    install(session, "test-client")
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself.
    session.run("python", "-m", "tests.differential", *session.posargs, interrupt_timeout=30.0)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant bugs, one at a time, and let simulated seeds find them: `-- --help`."""
    install(session, "test-client")
    session.run("python", "-m", "tests.mutants", *session.posargs)


@nox.session
def rounds(session: nox.Session) -> None:
    """Run the other tests that are marked `full`."""
    install(session, "test")
    fetch_brokers(session)
    run_pytest(session, *PARALLEL, "--full", "-m", "full", "--ignore=tests/protocol")


def works(python: str) -> bool:
    """Return True if the command exists and runs. A version manager's shim may exist and fail."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


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
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself, which takes longer than the 0.3 s that nox waits.
    session.run("python", "-m", "tests.bench", *session.posargs, interrupt_timeout=30.0)


def bench_spark(session: nox.Session, *arguments: str) -> None:
    """Measure the data source beside Spark's own: `nox -s bench -- --spark --help`."""
    fetch_brokers(session)
    # On Ctrl-C it stops Spark and its brokers itself.
    session.run("python", "-m", "tests.bench.spark", *arguments, interrupt_timeout=30.0)


def bench_bridge(session: nox.Session, *arguments: str) -> None:
    """Measure the bridge beside MirrorMaker 2: `nox -s bench -- --bridge --help`."""
    session.install(*nox.project.dependency_groups(PROJECT, "test-client"))
    # On Ctrl-C it stops its brokers itself.
    session.run("python", "-m", "tests.bench.bridge", *arguments, interrupt_timeout=30.0)


@nox.session(name="bridge-rounds")
def bridge_rounds(session: nox.Session) -> None:
    """Kill a bridge, and brokers of both sides, again and again: `-- --help`."""
    install(session, "test-client")
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself.
    session.run("python", "-m", "tests.bridge.rounds", *session.posargs, interrupt_timeout=30.0)


@nox.session
def demo(session: nox.Session) -> None:
    """Send Python's source through Kafka and Spark, verify and plot it. `-- --help`."""
    # Check the options first, with the Python that runs nox: the installation takes a minute.
    options = [sys.executable, "-m", "examples.demo.options", *session.posargs]
    session.run(*options, external=True)
    if {"-h", "--help"} & set(session.posargs):
        return
    if "--no-spark" in session.posargs:
        session.log("Installing 230 MB, without Spark")
        install(session, "demo", silent=False)
    else:
        session.log("Installing Spark too; with `-- --no-spark` it would be 230 MB in all")
        install(session, "demo-spark", silent=False)
    # On Ctrl-C it stops its cluster itself.
    session.run("python", "-m", "examples.demo", *session.posargs, interrupt_timeout=10.0)


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
                # These tests measure memory, which the sanitizers change.
                *("-k", "not python and not bomb and not memory and not real"),
                *("tests/protocol", "tests/producer/test_producer.py"),
                *("tests/producer/test_batch_delivery.py", "tests/producer/test_send_arrow.py"),
                env={
                    "AIOKAFKA08_IMPL": "c",
                    "LD_PRELOAD": " ".join(libraries),
                    "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself leaks
                    "PYTHONMALLOC": "malloc",
                },
            )


@nox.session
def build(session: nox.Session) -> None:
    """Build and check sdist and wheel; install the wheel elsewhere, without extras, and use it."""
    install(session, "build", project=False)
    shutil.rmtree("dist", ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = str(Path(folder, "aiokafka08"))
        session.run("python", "-m", "tests.distribution", "copy", copy)
        session.run("python", "-m", "build", "--outdir", "dist", copy)
    session.run("python", "-m", "tests.distribution", "check", "dist")
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
        # Without the extra `cli` the command says what to install.
        session.run(str(scripts / "aiokafka08"), external=True, success_codes=[2])
        shutil.copy(users_test, folder)  # this project's pytest configuration doesn't apply there
        session.run(python, "-m", "pytest", "-W", "error", users_test.name, external=True)


CHECK_INSTALLED = """
import importlib.metadata, importlib.resources, importlib.util, pathlib, sys
import aiokafka08
assert pathlib.Path(aiokafka08.__file__).is_relative_to(pathlib.Path(sys.argv[1]).resolve())
assert importlib.resources.files(aiokafka08).joinpath("py.typed").is_file()
assert importlib.util.find_spec("pyspark_kafka08") is not None  # Spark looks for it
assert importlib.metadata.version("aiokafka08") == aiokafka08.__version__
print("aiokafka08", aiokafka08.__version__, "from", aiokafka08.__file__)
"""


@nox.session
def changelog(session: nox.Session) -> None:
    """Show the next release's notes; `-- 0.1.0` writes them into CHANGELOG.md."""
    install(session, "changelog", project=False)
    if session.posargs:
        session.run("towncrier", "build", "--yes", "--version", *session.posargs)
    else:
        session.run("towncrier", "build", "--draft")
