"""What every test gets: its event loop, in debug mode, and its choice of tests and settings.

Law: a test is asynchronous or not, nothing else; which loop it runs on is chosen here. By default
that is asyncio's, and uvloop as well for tests marked `both_loops`; `--loop` names another choice
for all. Tests marked `full` are left out unless `--full` is given. How tests end is the matter of
`tests.endings`; real brokers come from `tests.brokers.fixtures`.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import platform
import signal
from collections.abc import Callable

import hypothesis
import pytest

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

pytest_plugins = ["pytester", "tests.leaks", "tests.timeouts", "tests.brokers.fixtures"]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

# Also for loops that pytest-asyncio doesn't make: in threads, and in the processes tests start.
os.environ["PYTHONASYNCIODEBUG"] = "1"

# A shell that runs all this in its background has SIGINT ignored, and so would the processes that
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW_CALLBACK_SECONDS = 1.0
"""Debug mode names callbacks that take longer. Its own 0.1 s says more of a busy machine than of
the code; what may not hold the loop has a test of its own."""


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
        deadline=None,  # it would measure the machine, as would the check for slow examples
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        derandomize=False,
        print_blob=True,
    )
    settings.register_profile("full", settings.get_profile("ci"), max_examples=1000)
    if config.getoption("--hypothesis-profile") is None:
        settings.load_profile("full" if config.getoption("--full") else "ci")


def pytest_report_header(config: pytest.Config) -> str:
    try:
        message_set = importlib.import_module("aiokafka08.protocol.message_set")
    except ImportError as error:  # a header says so; the tests that need it fail by themselves
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


def _new_loop(factory: LoopFactory) -> asyncio.AbstractEventLoop:
    loop = factory()
    loop.slow_callback_duration = SLOW_CALLBACK_SECONDS
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, LoopFactory]:
    factories: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if uvloop is not None:
        factories["uvloop"] = uvloop.new_event_loop
    wanted = config.getoption("--loop")
    if wanted == "auto":
        wanted = "both" if item.get_closest_marker("both_loops") else "asyncio"
    return {
        name: functools.partial(_new_loop, factory)
        for name, factory in factories.items()
        if wanted in {name, "both"}
    }
