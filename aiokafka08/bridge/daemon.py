"""`run_bridge`: run one session after the other, until the copy ends or an outage lasts too long.

An outage begins with the first failed session. It ends when a session commits something, or has had
nothing to copy for a minute; a session that merely begins doesn't end it.

Invariant: a process ends once a newer start has fenced it: `BridgeFencedError` is never retried.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from aiokafka08._core.garbage import older_objects_left_out
from aiokafka08._core.net.backoff import Backoff
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_session import CopySession, OnCommit
from aiokafka08.bridge.copy.progress_log import ProgressLog
from aiokafka08.bridge.copy.status import SESSION, CopyStatus, RepeatedError
from aiokafka08.bridge.errors import (
    BridgeError,
    BridgeFencedError,
    TargetError,
    TargetUnreachableError,
)
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.target.librdkafka_log import close_librdkafka_log
from aiokafka08.bridge.target.target_cluster import import_confluent
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.bridge.wording import GUARANTEE
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
    NoBrokersAvailable,
    UnsupportedVersionError,
)

_log: Final = logging.getLogger("aiokafka08.bridge")

# Another session can't help against these.
_FINAL: Final = (
    BridgeFencedError,
    BridgeError,
    IllegalArgumentError,
    KafkaConfigurationError,
    UnsupportedVersionError,
)
# How long an outage may last in a run that isn't a daemon (`until_caught_up`).
_OUTAGE_OF_ONE_RUN_S: Final = 60.0
# A session that had nothing to copy counts as a success once it has lasted for this time.
_STEADY_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0


async def run_bridge(
    config: BridgeConfig,
    status: CopyStatus,
    *,
    until_caught_up: bool = False,
    on_commit: OnCommit | None = None,
    new_session: Callable[..., CopySession] = CopySession,
    check_target: Callable[[BridgeConfig], Awaitable[object]] = refuse_old_target,
) -> None:
    """Copy until cancelled; a cancellation commits what was read and ends within five seconds.

    Meanwhile the garbage collector leaves out the objects that existed before (`gc.freeze`).

    Args:
        config: the file of the bridge.
        status: updated while the bridge copies.
        until_caught_up: True ends when everything that the source has at the start is committed
            (default False).
        on_commit: called after each commit, in the event loop (default None).
        new_session: makes the sessions.
        check_target: raises if the bridge can't copy to the target.

    Raises:
        BridgeFencedError: a newer start has taken over.
        BridgeError: the bridge or a cluster needs a change by hand.
        UnsupportedVersionError: the target is below 0.11.
        KafkaError: an outage has lasted for `copy.outage_s` (with `until_caught_up` at most a
            minute), or the target has refused the start for good.
        KafkaConfigurationError: confluent-kafka isn't installed, or refuses a property.
    """
    import_confluent()  # its objects are left out too
    # A full collection visits each object of the process and blocks the event loop meanwhile, so it
    # leaves out the objects of the imports.
    with older_objects_left_out():
        progress = asyncio.create_task(ProgressLog(config, status).follow(), name="bridge progress")
        try:
            await _run_sessions(
                config,
                status,
                until_caught_up,
                on_commit,
                new_session,
                check_target,
            )
        finally:
            progress.cancel()
            await asyncio.gather(progress, return_exceptions=True)
            close_librdkafka_log()


async def _run_sessions(
    config: BridgeConfig,
    status: CopyStatus,
    until_caught_up: bool,
    on_commit: OnCommit | None,
    new_session: Callable[..., CopySession],
    check_target: Callable[[BridgeConfig], Awaitable[object]],
) -> None:
    loop = asyncio.get_running_loop()
    run = BridgeRun()
    outage_s = config.copy.outage_s
    if until_caught_up:
        outage_s = min(outage_s, _OUTAGE_OF_ONE_RUN_S)
        config = replace(config, copy=replace(config.copy, outage_s=outage_s))
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    last_progress, transactions, is_said = loop.time(), 0, False
    failed = RepeatedError()
    while True:
        status.sessions += 1
        began_at = loop.time()
        try:
            await check_target(config)
            status.note_away("target", None)
            if not is_said:
                is_said = True
                _log.info("%s: %s", config.client_id, GUARANTEE)
            await new_session(config, status, run, on_commit).run(until_caught_up=until_caught_up)
            return
        except _FINAL:
            raise
        except KafkaError as error:
            if isinstance(error, TargetError) and not error.retriable and status.problem:
                raise  # the start was refused, such as for want of a permission
            if isinstance(error, NoBrokersAvailable):
                status.note_away("source", error.text)
            elif isinstance(error, TargetUnreachableError):
                status.note_away("target", error.text)
            now = loop.time()
            has_begun = status.problem is None
            lasted_s = now - began_at
            was_steady = has_begun and lasted_s >= min(_STEADY_S, outage_s) and not status.lag()
            if status.transactions > transactions or was_steady:  # an outage begins only now
                last_progress, transactions = now, status.transactions
                failed = RepeatedError()
                backoff.reset()
            failed = failed.again(error.text or repr(error))
            status.errors[SESSION], status.problem = failed, str(failed)
            if now - last_progress >= outage_s:
                raise
            pause = backoff.next()
            _log.warning(
                "%s: %s, next attempt in %.1f s: %s", config.client_id,
                "the copy stopped" if status.has_begun else f"not started yet (see {config.path})",
                pause, status.problem,
            )  # fmt: skip
        # After the `except` block, which has freed the exception and the frames of the session.
        _return_memory()
        await asyncio.sleep(pause)


def _return_memory() -> None:
    """Free the ended session, and give its memory back to the system."""
    # A session is in reference cycles, so only the garbage collector frees it. It visits young
    # objects only, since `run_bridge` has frozen the others.
    gc.collect()
    # glibc keeps freed memory in arenas, up to eight per processor, which threads share. librdkafka
    # starts new threads in each session, so this memory would grow from session to session.
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
