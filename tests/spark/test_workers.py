"""Spark's Python processes import the package, or `register` says what to set."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import parquet

from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.spark import register
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.ports import free_port
from tests.brokers.waiting import wait_for
from tests.spark.conftest import PACKAGES, QUICK_START, SHORT_JVM, cluster_home, quick_home
from tests.spark.packaging import bare_python, pip, zipped
from tests.support.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SET_PYTHON = (
    f"expected the Python of this program, {sys.executable}. Set the environment variable "
    "PYSPARK_PYTHON to it before the session starts: os.environ['PYSPARK_PYTHON'] = sys.executable"
)


def program(path: Path, text: str) -> str:
    """Write a program that stands for another Python."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "which doesn't start (exit status 0)"),
        ("echo 'no licence' >&2; exit 3", "which doesn't start (no licence)"),
        ("echo '[[3, 9], \"/usr\", []]'", f"Python 3.9 instead of 3.{sys.version_info[1]}"),
        (
            f'exec {sys.executable} -I -S "$@"',
            "which can't import aiokafka08 and pyarrow",
        ),
    ],
)
def test_register_with_another_python_says_what_to_set(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    """Such as the python3 of PATH, in a notebook or outside an activated environment."""
    python = program(tmp_path / "python3", text)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    with pytest.raises(KafkaConfigurationError) as caught:
        register(spark)
    message = str(caught.value)
    assert "\n" not in message
    assert f"Spark runs its Python processes with '{python}'" in message
    assert problem in message
    assert SET_PYTHON in message


def test_register_with_a_missing_python_says_what_to_set(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python-of-nobody")
    with pytest.raises(KafkaConfigurationError) as caught:
        register(spark)
    assert "'python-of-nobody', which isn't found; " + SET_PYTHON in str(caught.value)


def test_register_without_the_package_on_the_path_says_what_to_set(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same Python, to which the program added a folder that Spark doesn't know."""
    text = f'unset PYTHONPATH; cd /; exec {bare_python(tmp_path)} "$@"'
    monkeypatch.setattr(spark.sparkContext, "pythonExec", program(tmp_path / "python3", text))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    with pytest.raises(KafkaConfigurationError) as caught:
        register(spark)
    assert f"which can't import aiokafka08; this program imports aiokafka08 from {ROOT}." in str(
        caught.value
    )
    assert f"set the environment variable PYTHONPATH to {ROOT} before" in str(caught.value)


def test_register_passes_on_a_path_that_was_set_after_the_start(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM may run already, also behind `spark.stop()`: it keeps its own environment."""
    python = bare_python(tmp_path)
    monkeypatch.chdir(tmp_path)  # `python -c` imports from its folder
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(spark.sparkContext, "environment", {"PYTHONPATH": "/given"})
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(KafkaConfigurationError, match="can't import aiokafka08; this program"):
        register(spark)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    register(spark)
    assert spark.sparkContext.environment["PYTHONPATH"] == f"/given{os.pathsep}{ROOT}"


LATE_PATH = """
import os, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
servers, place = sys.argv[1:]
sys.path.append(place)
from aiokafka08.spark import register

if not place.endswith(".zip"):
    try:
        register(spark)
    except Exception as error:
        print(error, file=sys.stderr)
    os.environ["PYTHONPATH"] = place
register(spark)
reader = spark.read.format("kafka08").option("kafka.bootstrap.servers", servers)
print(reader.option("subscribe", "t").load().count())
"""


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_path_that_is_set_after_the_start_reaches_the_workers(
    filled: EmbeddedCluster, tmp_path: Path, kind: str
) -> None:
    python = bare_python(tmp_path)
    place = str(zipped(tmp_path) if kind == "zip" else ROOT)
    done = subprocess.run(
        [python, "-c", LATE_PATH, filled.bootstrap_servers, place],
        cwd=tmp_path,
        env=clean_environment(tmp_path, quick_home()) | {"PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split()[-1] == "100"
    assert ("set the environment variable PYTHONPATH to" in done.stderr) == (kind == "folder")


class RefusingContext:
    """Stands for the context of a platform whose JVM refuses calls."""

    pythonExec = "python-of-nobody"
    environment: dict[str, str] = {}  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"Py4JSecurityException: {name} is not allow-listed")


class Session:
    """Stands for a session of such a platform, or of Spark Connect."""

    def __init__(self, context: object) -> None:
        self._context = context
        self.registered: list[type] = []
        self.conf = SimpleNamespace(get=lambda _name, default: default)
        self.dataSource = SimpleNamespace(register=self.registered.append)

    @property
    def sparkContext(self) -> object:
        if self._context is None:
            raise RuntimeError("not supported on this compute")
        return self._context


@pytest.mark.parametrize("has_context", [False, True])
def test_register_where_calls_are_refused_skips_the_check(has_context: bool) -> None:
    session: Any = Session(RefusingContext() if has_context else None)
    register(session)
    assert len(session.registered) == 1


class PublicContext:
    """A context of which only the public attributes can be read."""

    pythonExec = "python-of-nobody"

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._context, name)


def test_check_needs_public_attributes_of_spark_only(spark: Any) -> None:
    session: Any = Session(PublicContext(spark.sparkContext))
    with pytest.raises(KafkaConfigurationError, match="'python-of-nobody', which isn't found"):
        register(session)


def test_register_runs_spark_python_once_for_the_same_paths(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'echo run >> {tmp_path}/runs; exec {sys.executable} "$@"'
    python = program(tmp_path / "python3", text)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(ROOT))
    register(spark)
    register(spark)
    assert (tmp_path / "runs").read_text() == "run\n"


# --- a zip of the package -------------------------------------------------------------------------


@pytest.fixture
def filled() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"t": 2, "copy": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("t", partition, [b"%d" % number for number in range(50)])
        yield cluster


def clean_environment(folder: Path, home: str) -> dict[str, str]:
    """Return an environment in which nothing says where the package is."""
    left_out = {"AIOKAFKA08_IMPL", "PYTHONASYNCIODEBUG", "PYTHONPATH"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in left_out and not name.startswith(("PYSPARK", "SPARK"))
    }
    return kept | {
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder} {SHORT_JVM}",
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={folder} {SHORT_JVM}",
    }


def spark_class(home: str, name: str) -> list[str]:
    """Return the beginning of a command that runs one of Spark's programs, as its scripts do."""
    return ["bash", f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}"]


def copy_with_zip(cluster: EmbeddedCluster, folder: Path, home: str, master: str) -> dict[str, Any]:
    """Run the job where only the zip has the package, check the copy, return what it printed."""
    environment = clean_environment(folder, home)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.python.authenticate.socketTimeout": "120s",
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [
            *spark_class(home, "SparkSubmit"),
            *("--master", master, *given, "--py-files", str(zipped(folder))),
            *(str(ROOT / "tests" / "spark" / "zip_job.py"), cluster.bootstrap_servers, str(folder)),
        ],
        cwd=folder,
        env=environment | {"PYSPARK_PYTHON": bare_python(folder)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    for partition in (0, 1):
        values = sorted(int(one.value or b"") for one in cluster.log("copy", partition))
        assert values == list(range(50))
    # Spark commits in a process of the driver, in which only this package configures the log.
    report = (
        r"^\d{4}-.* INFO aiokafka08\.spark: copy-job: batch \d+ wrote 100 rows: {\"copy\":{\"0\":50"
    )
    assert re.search(report, done.stderr, re.MULTILINE), done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert all(".zip" in file for file in [found["driver"], *found["files"]])
    return found


@pytest.mark.timeout(900)
def test_zip_of_the_package_streams_on_local_cores(filled: EmbeddedCluster, tmp_path: Path) -> None:
    """Spark looks for the zip in the wrong folder when it plans a stream (4.3.0)."""
    copy_with_zip(filled, tmp_path, quick_home(), "local[2]")


@contextmanager
def standalone_cluster(folder: Path, home: str) -> Iterator[str]:
    """Start Spark's master and two workers of one core each, and return the master's address."""
    environment = clean_environment(folder, home)
    log = folder / "master.log"
    running: list[subprocess.Popen[bytes]] = []

    def start(output: Path, name: str, *arguments: str) -> None:
        command = [*spark_class(home, name), "--host", "127.0.0.1"]
        with output.open("wb") as file:
            running.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0", *arguments],
                    cwd=folder,
                    env=environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )

    try:
        start(log, "master.Master", "--port", "0")
        address = wait_for(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()),
            60,
            "the master",
        )[1]
        for number in ("1", "2"):
            work = ["--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"work{number}")]
            start(folder / f"worker{number}.log", "worker.Worker", *work, address)
        wait_for(lambda: log.read_text().count("Registering worker") == 2 or None, 60, "workers")
        yield address
    finally:
        for process in running:  # all of them first: a timeout may end a wait
            process.kill()
        for process in running:
            process.wait()


@pytest.mark.full
@pytest.mark.timeout(900)
def test_zip_of_the_package_streams_on_a_standalone_cluster(
    filled: EmbeddedCluster, tmp_path: Path
) -> None:
    """Six JVMs start one after the other: on a busy machine that takes more than four minutes."""
    home = cluster_home(tmp_path)
    with standalone_cluster(tmp_path, home) as master:
        assert copy_with_zip(filled, tmp_path, home, master)["executors"] == 2


GUIDE = (ROOT / "docs" / "guides" / "spark_deployment.md").read_text()


def guide_block(language: str, word: str) -> str:
    """Return the guide's block of code that has a word."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if word in block]
    return found


@contextmanager
def shell(script: str, folder: Path, environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run a script that leaves programs running, and kill these at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-ec", f"{script}\nwait"],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.full
@pytest.mark.timeout(900)
def test_job_of_the_guide_runs_on_its_two_workers(tmp_path: Path) -> None:
    home, port = cluster_home(tmp_path), free_port()
    (tmp_path / "orders_to_lake.py").write_text(guide_block("python", "# orders_to_lake.py"))
    environment = clean_environment(tmp_path, home)
    environment |= {
        "PATH": f"{home}/bin{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "PYTHONPATH": PACKAGES,
    }
    commands = guide_block("bash", "worker.Worker").replace("7077", str(port))
    start, submit, job = commands.partition("PYSPARK_PYTHON=")
    with EmbeddedCluster(topics={"orders": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("orders", partition, [b"%d" % number for number in range(50)])
        job = f"{submit}{job.strip()}".replace("/lake", f"{tmp_path}/lake")
        log = tmp_path / "cluster.log"
        with shell(start, tmp_path, environment, log):
            wait_for(lambda: log.read_text().count("Registering worker") == 2, 120, "workers")
            done = subprocess.run(
                ["bash", "-ec", f"{job} --bootstrap {cluster.bootstrap_servers}"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stderr[-5000:]
            ran_on = set(re.findall(r"Launching executor \S+ on worker (\S+)", log.read_text()))
    assert len(ran_on) == 2
    files = [str(path) for path in (tmp_path / "lake" / "orders").rglob("*.parquet")]
    assert sum(parquet.read_metadata(file).num_rows for file in files) == 100


# --- a notebook -----------------------------------------------------------------------------------

NOTEBOOK = '''
import json, os, sys
import nbformat
from nbclient import NotebookClient

servers, begin = sys.argv[1:]
cells = [
    """
from pyspark.sql import SparkSession
from aiokafka08.spark import register

spark = SparkSession.builder.getOrCreate()
try:
    register(spark)
except Exception as error:
    print(error)
spark.stop()
""",
    begin,
    """
reader = spark.readStream.format("kafka08").option("kafka.bootstrap.servers", "SERVERS")
stream = reader.option("subscribe", "t").option("startingOffsets", "earliest").load()
query = stream.writeStream.format("memory").queryName("read").trigger(availableNow=True).start()
query.awaitTermination()
print(spark.table("read").count())
writer = spark.table("read").select("value").write.format("kafka08").option("topic", "copy")
writer.option("kafka.bootstrap.servers", "SERVERS").mode("append").save()
spark.stop()
""".replace("SERVERS", servers),
]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
texts = [
    "".join(output.text for output in cell.outputs if output.output_type == "stream")
    for cell in notebook.cells
]
print(json.dumps(texts))
'''


@pytest.mark.full
@pytest.mark.timeout(900)
def test_notebook_in_an_inactive_environment_reads_as_the_error_says(
    filled: EmbeddedCluster, tmp_path: Path
) -> None:
    """The kernel's environment has the package; PATH has another python3, without it."""
    python = bare_python(tmp_path, *PACKAGES.split(os.pathsep))
    pip(python, "install", "nbclient", "ipykernel")
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "python3", f'exec {sys.executable} -I -S "$@"')
    environment = clean_environment(tmp_path, quick_home())
    environment.pop("PYTEST_CURRENT_TEST", None)  # with it the kernel doesn't show Spark's stderr
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [python, "-c", NOTEBOOK, filled.bootstrap_servers, guide_block("python", "LagListener")],
        cwd=tmp_path,
        env=environment | {"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    refused, began, read = json.loads(done.stdout.splitlines()[-1])
    assert "which can't import aiokafka08 and pyarrow" in refused
    assert "os.environ['PYSPARK_PYTHON'] = sys.executable" in refused
    assert re.search(r"^100$", read, re.MULTILINE)
    assert "query 'read', batch 0: 100 offsets behind in 2 partitions" in began + read
    assert "INFO aiokafka08.spark: aiokafka08-spark: wrote 100 rows" in read
