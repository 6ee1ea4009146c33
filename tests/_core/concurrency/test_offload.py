"""Work runs in threads of the client; it is neither lost nor left behind when callers go away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest

from aiokafka08._core.concurrency.offload import Offload
from tests.support.gated_offload import offload_threads
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops


async def test_work_runs_in_a_named_thread_until_stop() -> None:
    offload = Offload()
    assert (await offload.run(threading.current_thread)).name.startswith("aiokafka08")
    assert offload_threads()
    await offload.stop()
    assert not offload_threads()


async def test_error_of_the_work_is_raised() -> None:
    offload = Offload()
    with pytest.raises(ValueError, match="invalid literal"):
        await offload.run(lambda: int("x"))
    await offload.stop()


async def test_no_thread_starts_without_work() -> None:
    offload = Offload()
    assert not offload_threads()
    await offload.stop()


async def test_stop_waits_for_work_whose_caller_is_cancelled() -> None:
    offload = Offload()
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert may_end.wait(10)

    caller = asyncio.ensure_future(offload.run(work))
    await until(begun.is_set, "the work has begun")
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    stopping = asyncio.ensure_future(offload.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    may_end.set()
    await stopping
    assert not offload_threads()


async def test_cancelled_stop_leaves_threads_that_end_with_their_work() -> None:
    offload = Offload()
    may_end = threading.Event()
    caller = asyncio.ensure_future(offload.run(lambda: may_end.wait(10)))
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(offload.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    may_end.set()
    assert await caller
    await until(lambda: not offload_threads(), "the threads end")


async def test_work_runs_once_if_a_thread_takes_it_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The executor queues the call, fails to start one more thread, and a thread that lives runs
    the call."""
    offload = Offload()
    executor = offload._executor
    submit = executor.submit

    def run_and_fail(call: Callable[[], object]) -> NoReturn:
        submit(call).result()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(executor, "submit", run_and_fail)
    threads = []

    def work() -> int:
        threads.append(threading.current_thread())
        return len(threads)

    assert await offload.run(work) == 1
    assert threads != [threading.main_thread()]
    await offload.stop()


async def test_work_after_stop_is_refused() -> None:
    offload = Offload()
    await offload.stop()
    with pytest.raises(RuntimeError, match="shutdown"):
        await offload.run(threading.current_thread)


def test_work_that_outlives_its_loop_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    may_end = threading.Event()

    async def main() -> None:
        offload = Offload()
        caller = asyncio.ensure_future(offload.run(lambda: may_end.wait(10)))
        await asyncio.sleep(0)
        caller.cancel()

    asyncio.run(main())
    [thread] = offload_threads()
    may_end.set()
    thread.join(10)
    assert not thread.is_alive()
    assert not caplog.records


async def test_work_runs_in_the_loop_if_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    offload = Offload()
    done = []

    def work() -> int:
        done.append(threading.get_ident())
        return len(done)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert await offload.run(work) == 1
        assert done == [threading.get_ident()]
    assert await offload.run(work) == 2  # the call that the executor has queued does nothing
    await offload.stop()
    assert len(done) == 2
    with pytest.raises(RuntimeError, match="after shutdown"):
        await offload.run(work)
