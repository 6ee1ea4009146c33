"""Settings of all tests: the event loop, the choice of tests, hypothesis profiles.

A test is a coroutine or a function; this module chooses the event loop. By default that is
asyncio's, and uvloop as well for tests marked `both_loops`; `--loop` names other loops for all
tests but those marked `asyncio_loop`. All loops are in debug mode. Tests marked `full` run only
with `--full`. `tests.support.leaks` and `tests.support.timeouts` check how a test ends; real
brokers come from `tests.brokers.fixtures`; `tests.support.lines` chooses their lines,
`tests.support.schedule` the process of xdist that runs a test.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import math
import os
import platform
import signal
import traceback
from collections.abc import Callable

import hypothesis
import pytest

from examples.demo.user_settings import forget_user_settings

_NO_FRAME = traceback.FrameSummary("<stack not recorded>", 0, "", lookup_line=False, line="")
_StackSummary = traceback.StackSummary


class _NoStacks:
    """In place of `traceback.StackSummary`, for uvloop."""

    @staticmethod
    def extract(*_: object, **__: object) -> list[traceback.FrameSummary]:
        return _StackSummary([_NO_FRAME])


try:
    # In debug mode uvloop records the stack of each handle, which took half of the CPU time. It
    # keeps the class that makes one when it is imported.
    with pytest.MonkeyPatch.context() as _patch:
        _patch.setattr(traceback, "StackSummary", _NoStacks)
        import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

pytest_plugins = [
    *(
        "pytester",
        "tests.support.leaks",
        "tests.support.timeouts",
        "tests.brokers.fixtures",
        "tests.support.lines",
    ),
    *("tests.support.first_import", "tests.support.schedule"),
]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

# Before tests import the client, and for the processes that they start.
forget_user_settings()

# For loops that pytest-asyncio doesn't create, too: in threads, and in processes of tests.
os.environ["PYTHONASYNCIODEBUG"] = "1"

# Debug mode checks that loops are called from their own threads. It also
# records the stack of each handle and future if `get_debug()` says so, which took a third of the
# CPU time of all tests; and ten frames where each coroutine was created, which took a tenth.
asyncio.BaseEventLoop.get_debug = lambda self: False  # type: ignore[method-assign]
asyncio.constants.DEBUG_STACK_DEPTH = 1  # type: ignore[attr-defined]

# A shell that runs pytest in the background ignores SIGINT. The processes that tests start, and
# interrupt, would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aiokafka08")
    group.addoption(
        "--loop",
        choices=("auto", "asyncio", "uvloop", "both"),
        default="auto",
        help="event loop of asynchronous tests (auto: asyncio, and uvloop too where a test is"
        " marked both_loops)",
    )
    group.addoption("--full", action="store_true", help="run the tests marked `full` too")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--loop") in {"uvloop", "both"} and uvloop is None:
        raise pytest.UsageError("--loop: uvloop isn't installed here")
    settings = hypothesis.settings
    settings.register_profile(
        "ci",
        deadline=None,  # a deadline would measure the machine, as would the check for slow examples
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        derandomize=False,
        print_blob=True,
        max_examples=50,
    )
    settings.register_profile("all_lines", settings.get_profile("ci"), max_examples=100)
    settings.register_profile("full", settings.get_profile("ci"), max_examples=1000)
    if config.getoption("--hypothesis-profile") is None:
        chosen = (name for name in ("full", "all_lines") if config.getoption(name))
        settings.load_profile(next(chosen, "ci"))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Give the tests of a folder the marks of `pytestmark` in its `__init__.py`."""
    if isinstance(collector, pytest.Package):
        name = ".".join(collector.path.relative_to(collector.config.rootpath).parts)
        marks = getattr(importlib.import_module(name), "pytestmark", [])
        for mark in marks if isinstance(marks, list) else [marks]:
            collector.add_marker(mark)


def pytest_report_header(config: pytest.Config) -> str:
    try:
        message_set = importlib.import_module("aiokafka08.protocol.message_set")
    except ImportError as error:  # only name it in the header; the tests that need it fail
        implementation = f"can't be imported ({error})"
    else:
        implementation = getattr(message_set, "IMPLEMENTATION", "without a name")
    loops = config.getoption("--loop")
    if loops == "auto" and uvloop is None:
        loops = "asyncio (uvloop isn't installed)"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    full = "yes" if config.getoption("--full") else "no"
    return f"aiokafka08: message set {implementation}, loop {loops}, full {full}, {python}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def _new_uvloop() -> asyncio.AbstractEventLoop:
    class Loop(uvloop.Loop):
        __module__ = "uvloop"  # tests tell the loops apart by it

        def get_debug(self) -> bool:
            return False  # as for asyncio's loops

    return Loop()


def _new_loop(factory: LoopFactory) -> asyncio.AbstractEventLoop:
    loop = factory()
    # How long a callback takes measures the load of the machine, and tests read the log. Code that
    # must not block the event loop has tests of its own.
    loop.slow_callback_duration = math.inf
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, LoopFactory]:
    factories: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if uvloop is not None:
        factories["uvloop"] = _new_uvloop
    wanted = config.getoption("--loop")
    if item.get_closest_marker("asyncio_loop"):
        wanted = "asyncio"
    elif wanted == "auto":
        wanted = "both" if item.get_closest_marker("both_loops") else "asyncio"
    return {
        name: functools.partial(_new_loop, factory)
        for name, factory in factories.items()
        if wanted in {name, "both"}
    }
