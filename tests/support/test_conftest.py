"""The pytest set-up of this project (conftest, `leaks`, `timeouts`), seen from outside.

Small test files run in a pytest process of their own, with this project's configuration and
plugins.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from tests.support.paths import ROOT
from tests.support.timeouts import Alarm, TimeoutExpiredError, waited_for_cpu_s

Run = Callable[..., pytest.RunResult]
LOOP_IDS = ("[asyncio]", "[uvloop]")


def section(result: pytest.RunResult, title: str) -> str:
    """Return the lines that the run printed below the line with this title."""
    lines = result.outlines
    [start] = [at for at, line in enumerate(lines) if line.strip("_ ") == title.strip()]
    ends = (at for at, line in enumerate(lines) if at > start and line.startswith(("___", "===")))
    return "\n".join(lines[start + 1 : next(ends)])


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs a test file, as `pytest` would in the project."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run_pytest(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        options = ("-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", *options)
        return pytester.runpytest_subprocess(*options, "-p", "no:cacheprovider", "-v", ".")

    return run_pytest


LOOPS = """
import asyncio, time
import pytest

async def test_debug(caplog):
    with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
        await asyncio.to_thread(asyncio.get_running_loop().call_soon, print)
    time.sleep(0.2)  # debug mode itself would complain
    await asyncio.sleep(0)
    assert not caplog.records

@pytest.mark.both_loops
async def test_both():
    timer = asyncio.get_running_loop().call_later(1, print)
    assert "print" in repr(timer)  # as debug mode shows a slow callback
    timer.cancel()
    print("module", type(asyncio.get_running_loop()).__module__)

@pytest.mark.asyncio_loop
async def test_only_on_asyncio():
    assert isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)

@pytest.mark.full
def test_slow(): pass
"""


def test_default_loop_is_asyncio_and_marked_tests_use_both(run: Run) -> None:
    result = run(LOOPS, "-s")
    result.assert_outcomes(passed=4, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "aiokafka08: message set *, loop auto, full no, CPython *",
            "*test_debug PASSED*",
            "*test_both?asyncio?*module asyncio.*",
            "*test_both?uvloop?*module uvloop*",
        ]
    )


def test_loop_option_applies_to_unmarked_and_full_adds_tests(run: Run) -> None:
    result = run(LOOPS, "-s", "--loop=uvloop", "--full")
    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("*module asyncio.*")


def test_marks_of_a_folder_apply_to_its_tests(run: Run, pytester: pytest.Pytester) -> None:
    folder = pytester.mkpydir("folder")
    (folder / "__init__.py").write_text("import pytest\npytestmark = [pytest.mark.full]\n")
    (folder / "test_inside.py").write_text("def test_inside(): pass\n")
    result = run("def test_outside(): pass\n", "--rootdir=.")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["*test_outside PASSED*"])


ENDINGS = """
import asyncio, socket, warnings
import pytest

@pytest.fixture
async def service():
    stop = asyncio.Event()
    task = asyncio.create_task(stop.wait(), name="service")
    yield
    stop.set()
    await task

async def outer(): await inner()
async def inner(): await asyncio.sleep(30)

async def test_fixtures_have_tasks(service): pass

@pytest.mark.both_loops
async def test_lost_task():
    asyncio.create_task(outer(), name="lost one")
    await asyncio.sleep(0)

async def test_warning():
    warnings.warn("old", DeprecationWarning)

class Cycle:
    def __init__(self):
        self.itself, self.socket = self, socket.socket()

async def test_socket():
    Cycle()

def test_socket_without_a_loop():
    Cycle()

async def test_coroutine():
    outer()

@pytest.mark.timeout(1)
@pytest.mark.both_loops
async def test_hangs(service):
    await outer()

@pytest.fixture
async def hanging_end():
    yield
    await inner()

@pytest.mark.timeout(1)
@pytest.mark.both_loops
async def test_fails(hanging_end):
    assert False

async def test_last(): pass
"""


def test_leaks_and_hangs_fail_in_their_own_name(run: Run) -> None:
    result = run(ENDINGS, "--rootdir=.", "--tb=short")
    outcomes = [line.split("::")[1].split()[:2] for line in result.outlines if "%]" in line]
    assert outcomes == [
        ["test_fixtures_have_tasks", "PASSED"],
        *(["test_lost_task" + loop, end] for loop in LOOP_IDS for end in ("PASSED", "ERROR")),
        ["test_warning", "FAILED"],
        ["test_socket", "PASSED"],
        ["test_socket", "ERROR"],
        ["test_socket_without_a_loop", "PASSED"],
        ["test_socket_without_a_loop", "ERROR"],
        ["test_coroutine", "FAILED"],
        *(["test_hangs" + loop, end] for loop in LOOP_IDS for end in ("FAILED", "ERROR")),
        *(["test_fails" + loop, end] for loop in LOOP_IDS for end in ("FAILED", "ERROR")),
        ["test_last", "PASSED"],
    ]
    for loop in LOOP_IDS:
        lost = section(result, f"ERROR at teardown of test_lost_task{loop}")
        assert "asyncio tasks left behind:\n  lost one: outer (" in lost
        assert "      inner (" in lost
        hangs = section(result, f" test_hangs{loop}")
        assert "Timeout: this took more than 1 s\nasyncio tasks:\n  Task-" in hangs
        assert ": test_hangs (" in hangs
        assert "      inner (" in hangs
        assert "  service: Event.wait (" in hangs
        fails = section(result, f"ERROR at teardown of test_fails{loop}")
        assert "Timeout: this took more than 1 s\nasyncio tasks:\n  Task-" in fails
        assert "      hanging_end (" in fails
        assert "      inner (" in fails
    for test in ("test_socket", "test_socket_without_a_loop"):
        assert "unclosed <socket.socket" in section(result, f"ERROR at teardown of {test} ")
    assert "coroutine 'outer' was never awaited" in section(result, " test_coroutine")


CLUSTERS = """
from tests.brokers import fixtures

class FakeCluster:
    closed = False
    def __init__(self, version, brokers, **security): pass
    def start(self): pass
    def heal(self): assert not self.closed
    def close(self): self.closed = True

fixtures.RealCluster = FakeCluster
seen = []

def test_1_passes(broker_clusters):
    seen.append(broker_clusters.get("0.8.2.2"))

def test_2_shares_it_and_fails(broker_clusters):
    assert broker_clusters.get("0.8.2.2") is seen[0]
    assert not seen

def test_3_gets_a_new_one(broker_clusters):
    assert seen[0].closed
    assert broker_clusters.get("0.8.2.2") is not seen[0]
"""


def test_a_failed_test_leaves_its_cluster_to_no_other(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIOKAFKA08_NO_REAL_BROKERS", raising=False)
    result = run(CLUSTERS)
    assert result.parseoutcomes() == {"passed": 2, "failed": 1}
    result.stdout.fnmatch_lines(["*test_2_shares_it_and_fails FAILED*"])


REPEATED = """
import asyncio, time
import pytest
from hypothesis import given, strategies

@pytest.mark.timeout(1)
@given(strategies.integers())
def test_busy(number):
    time.sleep(30)

@pytest.mark.timeout(1)
@pytest.mark.both_loops
@given(strategies.integers())
async def test_waiting(number):
    await asyncio.sleep(30)

def test_last(): pass
"""


@pytest.mark.timeout(120)
def test_hang_in_a_property_ends_at_its_timeout(run: Run) -> None:
    """Hypothesis would repeat it with smaller examples, for minutes."""
    result = run(REPEATED, "--tb=short")
    # Besides, the task of each coroutine is left behind.
    result.assert_outcomes(failed=3, errors=2, passed=1)
    assert result.stdout.str().count("Timeout: this took more than 1 s") >= 3


def test_wait_for_a_cpu_does_not_count_for_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s = iter([100.0, 140.0, 150.0, 150.2])
    assert alarms_of(waited_s, monkeypatch) == [60, 40, 10]


def test_wait_for_a_cpu_puts_a_timeout_off_by_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s = iter([0.0, 200.0, 900.0, 999.0])
    assert alarms_of(waited_s, monkeypatch) == [60, 200, 40]


def test_time_on_a_cpu_is_no_wait_for_it() -> None:
    waited_s, began_s, used_s = waited_for_cpu_s(), time.monotonic(), time.thread_time()
    while time.thread_time() < used_s + 0.3:
        pass
    without_cpu_s = time.monotonic() - began_s - 0.3
    assert waited_for_cpu_s() - waited_s < without_cpu_s + 0.1


def alarms_of(waited_s: Iterator[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let an alarm of 60 s expire until it raises; return the times to which it was set."""
    alarms: list[float] = []
    alarm = Alarm(SimpleNamespace(timeout=60, disable_debugger_detection=True))
    with monkeypatch.context() as patch:  # to its end, the alarm of this test itself isn't set
        patch.setattr("tests.support.timeouts.waited_for_cpu_s", lambda: next(waited_s))
        patch.setattr("signal.setitimer", lambda _, after_s, every_s: alarms.append(after_s))
        patch.setattr("signal.signal", lambda *_: None)
        alarm.start()
        for _ in range(2):
            alarm._expire(signal.SIGALRM, None)
            assert not alarm.report
        with pytest.raises(TimeoutExpiredError):
            alarm._expire(signal.SIGALRM, None)
    assert alarm.report.startswith("Timeout: this took more than 60 s")
    return alarms
