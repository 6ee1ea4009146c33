"""The sessions of this project. `nox -s tests` is all of CI; `nox` alone runs lint and types.

    nox -s tests                                all checks, on the Python that runs nox
    nox -s tests -- tests/protocol -k crc       pytest only, with these arguments
    nox -s lint types                           ruff, codespell, cython-lint, import-linter; types
    nox -s full                                 both loops, all lines, other Pythons, build
    nox -s bench -- --quick                     this client beside its peers, in two minutes
    nox -s bench -- --ours --before DIR         this checkout beside another one
    nox -s bench -- --output docs/benchmarks    the whole benchmark; writes the pages in docs/
    nox -s differential -- --seeds 500          embedded and real brokers on random requests
    nox -s simulate -- --seeds 1000 --jobs 2    the mixed scenario in virtual time, by seed
    nox -s mutants                              plant bugs; each must be found by a seed
    nox -s mutation -- --sample 200             small changes; which ones do the tests not see?
    nox -s fuzz                                 many more hostile bytes than in `tests`
    nox -s fuzz -- --examples 10000000 --jobs 2 as many mutated frames and sets
    nox -s soak -- --minutes 60                 real brokers with kills: memory, tasks stay flat
    nox -s sanitize                             the compiled modules on hostile bytes, with gcc
    nox -s demo                                 the whole client on the embedded cluster
    nox -s demo -- --bootstrap localhost:9092   the same on a real cluster
    nox -s demo -- --no-spark                   the same without Spark, which is not installed
    nox -s bench -- --bridge                    the bridge beside MirrorMaker 2
    nox -s bridge-rounds -- --rounds 20         kill a bridge and its clusters; nothing may be lost
    nox -s docs                                 the documentation, as a site in build/docs
    nox -s changelog                            the next release's notes
    nox -s build                                sdist and wheels, checked and used elsewhere
    nox -s build -- --suites                    the same, with the embedded suites for each wheel
    nox -s audit                                vulnerabilities and licences of dependencies; SBOM
    nox -s lowest                               the lowest versions of the dependencies
    nox -s wheelhouse -- --extras cli,spark     all wheels for a network without PyPI
    nox -s release -- 0.1.0 --suites            all of a release but the upload

Add `-R` to reuse the environment as it is. After a change to a .pyx leave it out: the installation
compiles.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types"]
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
IN_UNITS = ("--dist=loadgroup", "--no-loadscope-reorder")
"""`tests/schedule.py` decides which tests one process runs, and in which order."""
PARALLEL = ("--numprocesses=6", *IN_UNITS)
"""Six processes on two cores: many tests wait for brokers or Spark."""

PURE = ("-m", "not real", "tests/contract/client", "tests/consumer", "tests/producer")
"""The tests that run once more on the pure twins, without real brokers. The tests of the message
set itself always run for both twins."""

PURE_IN_TESTS = (
    *("-m", "not real", "--loop=asyncio"),
    # The twins know as little of loops as the compiled modules, and of lines only the format of
    # messages: 0.8.2 and 0.10 have one each.
    *("-k", "not embedded_0.8.0 and not embedded_0.8.1 and not embedded_0.9"),
    *(
        f"tests/contract/client/test_{name}.py"
        for name in ("acks0", "consume", "offset_gaps", "produce")
    ),
    *(
        f"tests/consumer/test_{name}.py"
        for name in (
            "borrowed_memory", "collector", "fetch_memory", "fetcher", "getmany_arrow",
            "long_wrappers", "next_fetch", "random_calls", "range", "received_frames",
            "record_buffer", "unreadable_messages",
        )
    ),
    "tests/producer",
)  # fmt: skip
"""Of the tests of `PURE`, those of code that calls a twin."""

REAL_ON_EACH_PYTHON = (
    *("-m", "real and not spark"),
    *("tests/contract/zookeeper", "tests/offset_store", "tests/net/test_router_on_brokers.py"),
    *("tests/bridge/test_copy.py", "tests/bridge/test_worker.py"),
)
"""Tests on real brokers of what a Python version may change: TLS, and the threads of kazoo and
confluent-kafka."""

WITHOUT_SPARK = tuple(
    f"tests/{name}"
    for name in (
        "admin", "bridge", "brokers", "cli", "concurrency", "consumer", "contract",
        "coordinator",
        "differential", "failover", "fuzz", "history", "membership", "monitoring", "mutants",
        "mutation", "net",
        "offset_store", "producer", "protocol", "simulation", "soak",
        "testing", "zookeeper",
    )
)  # fmt: skip
"""Folders of tests that need neither Spark nor the demo's packages."""

SUITES = tuple(
    f"tests/{name}"
    for name in (
        "concurrency", "consumer", "contract", "coordinator", "headers", "history", "membership",
        "net", "offset_store", "producer", "protocol", "testing",
    )
)  # fmt: skip
"""The tests of clients and embedded cluster that `--suites` runs with each wheel."""

SEEDS = 2000
SEEDS_OF_A_PYTHON = 300
"""Seeds of the mixed scenario: in `full` in all, and on each Python, as many as in `tests`.
`rounds` runs the rest, with numbers behind those of all `PYTHONS`."""

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
    session.run(
        "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "examples/bridge/docker-compose.yml",
    )
    session.run("towncrier", "build", "--draft")


TYPES = (("mypy", "--num-workers=2", *CODE), ("basedpyright",))
"""Check the types of all Python code, and those that a program sees."""


def run_types(session: nox.Session) -> None:
    """Run `TYPES`."""
    for command in TYPES:
        session.run(*command)


def environment(twin: str) -> dict[str, str]:
    """Return the variables of tests on one twin; with "c" they fail if it couldn't be built."""
    # Without cached bytecode each process of the tests would compile the package again.
    return {"AIOKAFKA08_IMPL": twin, "PYTHONDONTWRITEBYTECODE": ""}


def pytest_of(*arguments: str) -> tuple[str, ...]:
    """Return the command that runs pytest."""
    return ("python", "-m", "pytest", *arguments)


def run_pytest(session: nox.Session, *arguments: str, twin: str = "c") -> None:
    """Run pytest on one twin."""
    session.run(*pytest_of(*arguments), env=environment(twin))


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
    return ("python", "-m", "tests.simulation", *options)


def fetch_brokers(session: nox.Session) -> None:
    """Download the brokers before the tests, so that no test's timeout includes a download."""
    if os.environ.get("AIOKAFKA08_NO_REAL_BROKERS") != "1":
        session.run("python", "-m", "tests.brokers", "--fetch")


def archive_spark(session: nox.Session) -> None:
    """Write the archive of Spark's classes, unless the environment has it: 35 to 55 CPU-s, once.

    With it a JVM of Spark starts with 3 in place of 8 CPU-s.
    """
    session.run("python", "-m", "tests.spark.class_archive")


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
    """Run ruff, codespell, cython-lint, import-linter, check-jsonschema and towncrier."""
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
    fetch_brokers(session)
    archive_spark(session)
    fetch_kcat(session)
    with beside(session, *TYPES, pytest_of(*PURE_IN_TESTS), twin="python"):
        run_pytest(session, *PARALLEL)


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
    fetch_brokers(session)
    archive_spark(session)
    with beside(session, *TYPES, pytest_of(*PURE), twin="python"):
        run_pytest(session, *PARALLEL, "--loop=both", "--all-lines", *session.posargs)


@nox.session(python=PYTHONS)
def interpreter(session: nox.Session) -> None:
    """Run what a Python version may change.

    That is all but most tests on real brokers: a version changes none of the bytes that they get.
    Each version has seeds of its own.
    """
    install(session, "test")
    fetch_brokers(session)
    archive_spark(session)
    selected = ("-m", "not real or spark", "-k", "not test_no_seed_shows_an_anomaly")
    with beside(session, pytest_of(*PURE_IN_TESTS), twin="python"):
        run_pytest(session, *PARALLEL, *selected, *session.posargs)
        run_pytest(session, *PARALLEL, *REAL_ON_EACH_PYTHON, *session.posargs)
    number = PYTHONS.index(str(session.python))
    session.run(*seeds(number * SEEDS_OF_A_PYTHON, SEEDS_OF_A_PYTHON))


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run a campaign of mutated frames and sets: `-- --help`. Without options, tests too."""
    install(session, "test-client", "fuzz")
    if not session.posargs:
        run_pytest(session, *PARALLEL, "--full", "tests/protocol")
    session.run("python", "-m", "tests.fuzz", *session.posargs)


@nox.session
def simulate(session: nox.Session) -> None:
    """Run seeds of the mixed scenario in virtual time: `-- --help` lists the options."""
    install(session, "test-client")
    session.run("python", "-m", "tests.simulation", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Run clients beside real brokers that are killed; all gauges stay flat: `-- --help`."""
    install(session, "test-client")
    fetch_brokers(session)
    # On Ctrl-C it stops its brokers itself.
    session.run("python", "-m", "tests.soak", *session.posargs, interrupt_timeout=30.0)


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
def mutation(session: nox.Session) -> None:
    """Change code at random places and list the changes that no test finds: `-- --help`."""
    install(session, "test-client", "mutation")
    session.run("python", "-m", "tests.mutation", *session.posargs)


@nox.session
def rounds(session: nox.Session) -> None:
    """Run the other tests that are marked `full`, and the other seeds."""
    install(session, "test")
    fetch_brokers(session)
    archive_spark(session)
    run_pytest(session, *PARALLEL, "--full", "-m", "full", "--ignore=tests/protocol")
    # Not beside the tests: Spark gives a Python worker 10 s to connect, whatever the machine does.
    ran = len(installed_pythons()) * SEEDS_OF_A_PYTHON
    session.run(*seeds(len(PYTHONS) * SEEDS_OF_A_PYTHON, SEEDS - ran))


def installed_pythons() -> list[str]:
    """Return those of `PYTHONS` that are installed, the oldest first."""
    return [version for version in PYTHONS if works(f"python{version}")]


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
    """Build and check sdist and wheels, and use each wheel elsewhere. `-- --pure`: no compiled one.

    On Linux the compiled wheels are made for each Python found, and become manylinux ones. The
    sdist is used with a C compiler and without one. `-- --suites` runs the tests of `SUITES` with
    each wheel, too.
    """
    install(session, "build", project=False)
    pure, suites = (name in session.posargs for name in ("--pure", "--suites"))
    build_artifacts(session, pure=pure, suites=suites)


def build_artifacts(session: nox.Session, *, pure: bool, suites: bool) -> None:
    """Fill `dist`, check it, and use its wheels; with `suites` run these with each of them."""
    shutil.rmtree("dist", ignore_errors=True)
    pythons = {version: f"python{version}" for version in installed_pythons()}
    with tempfile.TemporaryDirectory() as folder:
        copies = {kind: str(Path(folder, kind)) for kind in ("copy", "pure")}
        for kind, copy in copies.items():
            session.run("python", "-m", "tests.distribution", kind, copy)
        # Only a build that fails shows its thousands of lines.
        build = ("python", "-m", "build", "--outdir", "dist")
        session.run(*build, "--sdist", copies["copy"], silent=True)
        session.run(*build, "--wheel", copies["pure"], silent=True)
        for version, python in () if pure else pythons.items():
            build_wheel(session, python, copies["copy"], str(Path(folder, version)))
    session.run("python", "-m", "tests.distribution", "check", "dist")
    artifacts = sorted(str(path.resolve()) for path in Path("dist").iterdir())
    session.run("twine", "check", "--strict", *artifacts)
    for path in artifacts:
        if path.endswith(".whl"):
            is_pure = path.endswith("-any.whl")
            tag = Path(path).name.split("-")[2].removeprefix("cp3")
            python = sys.executable if is_pure else pythons.get(f"3.{tag}", sys.executable)
            twin = "python" if is_pure else "c"
            check_installed(session, path, python, twin)
            if suites:
                run_suites(session, path, python, twin)
        else:
            check_installed(session, path, sys.executable, "python", CC="false")  # no compiler
            if not pure:
                check_installed(session, path, sys.executable, "c")


def build_wheel(session: nox.Session, python: str, source: str, folder: str) -> None:
    """Build the compiled wheel for a Python into `dist`; on Linux auditwheel makes it portable."""
    session.run(python, "-m", "venv", f"{folder}-venv", external=True)
    own = str(Path(f"{folder}-venv", "bin", "python"))
    session.run(own, "-m", "pip", "install", "--quiet", "build", external=True)
    build = (own, "-m", "build", "--outdir", folder, "--wheel", source)
    session.run(*build, external=True, silent=True)
    [wheel] = Path(folder).iterdir()
    if sys.platform == "linux":
        session.run("auditwheel", "repair", "--wheel-dir", "dist", str(wheel))
    else:
        shutil.copy(wheel, "dist")


def check_installed(
    session: nox.Session, artifact: str, python: str, impl: str, **environment: str
) -> None:
    """Install a wheel or sdist elsewhere, without extras, and run a user's tests with it."""
    users_test = Path("examples/test_my_service.py").resolve()
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run(python, "-m", "venv", "venv", external=True)
        scripts = Path(folder, "venv", "Scripts" if os.name == "nt" else "bin")
        own = str(scripts / "python")
        # From its cache pip would take a wheel that it built of this sdist in another way.
        install = ("install", "--quiet", "--no-cache-dir", artifact, "pytest")
        session.run(own, "-m", "pip", *install, env=environment, external=True)
        session.run(own, "-W", "error", "-c", CHECK_INSTALLED, folder, impl, external=True)
        # Without the extra `cli` the command says what to install.
        session.run(str(scripts / "aiokafka08"), external=True, success_codes=[2])
        shutil.copy(users_test, folder)  # this project's pytest configuration doesn't apply there
        session.run(own, "-m", "pytest", "-W", "error", users_test.name, external=True)


def run_suites(session: nox.Session, wheel: str, python: str, twin: str) -> None:
    """Run the tests of `SUITES` that need no real broker with a wheel, away from the checkout."""
    requirements = nox.project.dependency_groups(PROJECT, "test-client")
    with tempfile.TemporaryDirectory() as folder:
        session.run(python, "-m", "venv", str(Path(folder, "venv")), external=True)
        own = str(Path(folder, "venv", "Scripts" if os.name == "nt" else "bin", "python"))
        session.run(own, "-m", "pip", "install", "--quiet", wheel, *requirements, external=True)
        tests = str(Path(folder, "tests"))
        session.run("python", "-m", "tests.distribution", "tests", tests)
        with session.chdir(tests):
            session.run(own, "-W", "error", "-c", CHECK_INSTALLED, folder, twin, external=True)
            arguments = ("--numprocesses=2", *IN_UNITS, "-m", "not real", *SUITES)
            env = {"AIOKAFKA08_IMPL": twin, "PYTHONPATH": None}
            session.run(own, "-m", "pytest", *arguments, env=env, external=True)


CHECK_INSTALLED = """
import importlib.metadata, importlib.resources, importlib.util, pathlib, sys
import aiokafka08
assert pathlib.Path(aiokafka08.__file__).is_relative_to(pathlib.Path(sys.argv[1]).resolve())
assert importlib.resources.files(aiokafka08).joinpath("py.typed").is_file()
assert importlib.util.find_spec("pyspark_kafka08") is not None  # Spark looks for it
assert importlib.metadata.version("aiokafka08") == aiokafka08.__version__
from aiokafka08.protocol import twins
assert f"impl={sys.argv[2]}" in f"impl={twins.describe(twins.CONSUMER_TWINS)}"
print("aiokafka08", aiokafka08.__version__, "from", aiokafka08.__file__)
"""


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


@nox.session
def changelog(session: nox.Session) -> None:
    """Show the next release's notes; `-- 0.1.0` writes them into CHANGELOG.md."""
    install(session, "changelog", project=False)
    if session.posargs:
        session.run("towncrier", "build", "--yes", "--version", *session.posargs)
    else:
        session.run("towncrier", "build", "--draft")


@nox.session
def release(session: nox.Session) -> None:
    """Prepare a release: `-- 0.1.0` makes version, changelog, commit, tag, artifacts and checks.

    All happens in a clone: only `dist`, the branch `release/<version>` and the tag `v<version>`
    come back. It never pushes. With `--suites` each wheel runs the tests of `SUITES`, too.
    """
    versions = [one for one in session.posargs if one != "--suites"]
    if len(versions) != 1:
        session.error("expected the version: nox -s release -- 0.1.0, and perhaps --suites")
    [version] = versions
    branch, tag, root = f"release/{version}", f"v{version}", str(Path.cwd())
    if git(session, "status", "--porcelain"):
        session.error("uncommitted changes: commit or stash them, since a release is of a commit")
    if git(session, "tag", "--list", tag):
        session.error(f"tag {tag} exists: choose another version, or delete the tag")
    install(session, "build", "changelog", project=False)
    with tempfile.TemporaryDirectory() as folder:
        clone = str(Path(folder, "clone"))
        git(session, "clone", "--quiet", root, clone)
        with session.chdir(clone):
            for name in ("user.name", "user.email"):
                git(session, "config", name, git(session, "-C", root, "config", name))
            git(session, "switch", "--quiet", "--create", branch)
            session.run("towncrier", "build", "--yes", "--version", version)
            session.run("python", "-m", "tests.release", "version", version)
            git(session, "commit", "--quiet", "--all", "--message", f"release: {version}")
            git(session, "tag", "--annotate", tag, "--message", f"aiokafka08 {version}")
            build_artifacts(session, pure=False, suites="--suites" in session.posargs)
            # Mirrors have no advisories; the workflow audits again before it publishes.
            audit_dependencies(session, advisories=False)
            shutil.copy("build/sbom.cdx.json", "dist")
            sums = session.run("python", "-m", "tests.release", "sums", "dist", silent=True)
        git(session, "fetch", "--quiet", clone, f"{branch}:{branch}", "tag", tag)
        shutil.rmtree("dist", ignore_errors=True)
        shutil.copytree(Path(clone, "dist"), "dist")
    count = len(list(Path("dist").iterdir()))
    session.log(f"Left to do, after reading {branch}:")
    missing = str(session.run("python", "-m", "tests.release", "addresses", silent=True)).strip()
    if missing:
        session.log(f"    add {missing} to [project.urls] in pyproject.toml, and begin anew")
    session.log(f"    git merge --ff-only {branch} && git push origin HEAD {tag}")
    session.log("The workflow `release` publishes the tag; docs/releases.md has the rehearsal.")
    print(f"release: version={version} artifacts={count} sha256={str(sums).strip()}", flush=True)


def git(session: nox.Session, *arguments: str) -> str:
    """Run git and return what it prints."""
    return str(session.run("git", *arguments, external=True, silent=True, log=False)).strip()


@nox.session
def audit(session: nox.Session) -> None:
    """Check the dependencies of all extras: vulnerabilities, licences; write an SBOM to `build`."""
    install(session, "build", project=False)
    audit_dependencies(session, advisories=True)


def audit_dependencies(session: nox.Session, *, advisories: bool) -> None:
    """Install this project with all extras elsewhere, check what came along, and list it.

    With `advisories` it fails where those of a dependency can't be had, else it only names these.
    """
    Path("build").mkdir(exist_ok=True)
    extras = ",".join(PROJECT["project"]["optional-dependencies"])
    with tempfile.TemporaryDirectory() as folder:
        copy = str(Path(folder, "copy"))
        session.run("python", "-m", "tests.distribution", "copy", copy)
        session.run("python", "-m", "venv", folder)
        own = str(Path(folder, "Scripts" if os.name == "nt" else "bin", "python"))
        session.run(own, "-m", "pip", "install", "--quiet", "--upgrade", "pip", external=True)
        session.run(own, "-m", "pip", "install", "--quiet", f"{copy}[{extras}]", external=True)
        session.run(own, "-m", "tests.release", "licences", external=True)
        [site] = Path(folder, "lib").glob("python*/site-packages")
        report = str(Path(folder, "audit.json"))
        options = ("--skip-editable", "--progress-spinner", "off", "--format", "json")
        session.run("pip-audit", "--path", str(site), *options, "--output", report)
        codes = [0] if advisories else [0, 1]
        session.run("python", "-m", "tests.release", "audited", report, success_codes=codes)
        sbom = ("--output-reproducible", "--output-file", "build/sbom.cdx.json")
        session.run("cyclonedx-py", "environment", own, "--pyproject", "pyproject.toml", *sbom)


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """Run tests of the client with the lowest versions of the dependencies that are allowed."""
    session.install("uv>=0.9")
    extras = [
        f"--extra={name}" for name in PROJECT["project"]["optional-dependencies"] if name != "spark"
    ]
    pins = str(Path(session.create_tmp(), "lowest.txt"))
    session.run(
        *("uv", "pip", "compile", "pyproject.toml", "--quiet", "--output-file", pins),
        *("--resolution", "lowest-direct", "--python-version", "3.11", *extras),
    )
    requirements = nox.project.dependency_groups(PROJECT, "test-client")
    session.install(*requirements)
    # The SDK, which only the tests need, works with the API of the same version.
    [api] = re.findall(r"^opentelemetry-api(==\S+)", Path(pins).read_text(), re.MULTILINE)
    session.install("-e", ".", "-r", pins, f"opentelemetry-sdk{api}")
    suites = ("tests/protocol", "tests/headers", "tests/test_opentelemetry.py", "tests/cli/records")
    run_pytest(session, "-m", "not real", *(session.posargs or suites))


@nox.session
def wheelhouse(session: nox.Session) -> None:
    """Collect wheels for a network without PyPI: `-- --extras cli,spark,zookeeper`, `--to DIR`."""
    parser = argparse.ArgumentParser(prog="nox -s wheelhouse --")
    parser.add_argument("--extras", default="", help="such as cli,spark,zookeeper (default: none)")
    parser.add_argument("--to", default="build/wheelhouse", help="the folder (%(default)s)")
    options = parser.parse_args(session.posargs)
    known = PROJECT["project"]["optional-dependencies"]
    extras = [one for one in options.extras.split(",") if one]
    if unknown := [one for one in extras if one not in known]:
        session.error(f"--extras {','.join(unknown)}: expected some of {', '.join(known)}")
    folder = Path(options.to)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as copies:  # a build here could take modules of earlier ones
        copy = str(Path(copies, "copy"))
        session.run("python", "-m", "tests.distribution", "copy", copy)
        project = f"{copy}[{','.join(extras)}]" if extras else copy
        session.run("python", "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder), project)
    session.run("python", "-m", "tests.release", "pin", str(folder))
    with tempfile.TemporaryDirectory() as test:
        session.run("python", "-m", "venv", test)
        own = str(Path(test, "Scripts" if os.name == "nt" else "bin", "python"))
        offline = ("--no-index", "--find-links", str(folder), "--require-hashes")
        pins = str(folder / "requirements.txt")
        session.run(own, "-m", "pip", "install", "--quiet", *offline, "-r", pins, external=True)
        session.run(own, "-m", "pip", "check", external=True)
        session.run(own, "-c", "import aiokafka08; aiokafka08.AIOKafkaProducer", external=True)
    session.log(f"{len(list(folder.glob('*.whl')))} wheels in {folder}. In the other network:")
    session.log(
        f"    pip install --no-index --find-links {folder.name} --require-hashes "
        f"-r {folder.name}/requirements.txt"
    )
