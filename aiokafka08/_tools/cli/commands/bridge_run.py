"""`bridge run` and `bridge status`: copy, and show how far the copy is."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.declare import LOG_LEVELS, Example, command, format_option, log_to_stderr
from aiokafka08._tools.cli.main import DONE, FAILED, FENCED, fail
from aiokafka08._tools.cli.notes import erase_status, note, show_status
from aiokafka08._tools.cli.signals import Terminated

if TYPE_CHECKING:
    from aiokafka08._core.metrics.endpoint import Page
    from aiokafka08.bridge.config import BridgeConfig, OnLoss
    from aiokafka08.bridge.copy.status import CopyStatus
    from aiokafka08.bridge.errors import TargetUnavailableError

# How often the line with the progress is drawn.
_PROGRESS_S: Final = 0.5

# The longest pause after which `bridge status` reads the positions again.
_LONGEST_LOOK_S: Final = 10.0

FIELDS: Final = {
    "topic": "the topic at the source",
    "partition": "the partition's number",
    "target": "the topic at the target",
    "position": "the source offset of the next message to copy; null: nothing is copied yet",
    "end": "the source offset after the last message; null: the partition has no leader",
    "lag": "end - position; all of the log if nothing is copied yet; null as end",
}


@command(
    "run",
    examples=[
        Example(
            "Copy all present messages, and end",
            "aiokafka08 bridge run bridge.toml --until-caught-up",
        ),
    ],
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End as soon as all that the source has at the start is copied.",
)
@click.option("--rate", metavar="RATE", help='The most bytes per second, such as "20MB/s".')
@click.option(
    "--on-loss",
    type=click.Choice(("stop", "skip")),
    help="Where the source has lost messages, stop the partition or skip them (default: "
    "copy.on_loss of FILE).",
)
@click.option(
    "--listen",
    metavar="[HOST]:PORT",
    help="Serve /metrics and /healthz there (default: listen of FILE, or not at all).",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    help="What to log on stderr (default: info).",
)
def run_(
    file: Path,
    until_caught_up: bool,
    rate: str | None,
    on_loss: OnLoss | None,
    listen: str | None,
    log_level: str,
) -> int:
    """Copy topics to the target, exactly once, until SIGTERM or Ctrl-C.

    Each transaction of the target has records and the positions after them, so the copy goes on
    where it ended, even after a crash. SIGTERM commits what was read. The newest start fences older
    ones, which end with exit code 3. With --until-caught-up the exit code is 1 if a partition
    isn't copied to its end, or a pattern of topics.include matches no topic.
    """
    from dataclasses import replace

    from aiokafka08._core.concurrency.rate import parse_rate
    from aiokafka08._tools.cli.connection import run
    from aiokafka08.bridge.config import read_config
    from aiokafka08.bridge.copy.status import CopyStatus
    from aiokafka08.bridge.errors import BridgeFencedError

    config = read_config(file)
    if rate is not None:
        config = replace(config, copy=replace(config.copy, rate=parse_rate(rate)))
    if on_loss is not None:
        config = replace(config, copy=replace(config.copy, on_loss=on_loss))
    if listen is not None:
        config = replace(config, listen=listen)
    _log(log_level)
    status = CopyStatus()
    try:
        with _noted_end(status):
            run(_run(config, status, until_caught_up))
    except BridgeFencedError as error:
        return fail(error.text, FENCED)
    except Terminated:
        return DONE  # the last transactions are committed, or aborted
    problems = [*status.stopped.values(), *status.refused_topics.values()]
    for problem in problems:
        fail(problem, FAILED)
    return FAILED if problems else DONE


def _log(level: str) -> None:
    """Log from this level on; at `info`, log only warnings from the bridge's clients."""
    usual = {"aiokafka08": "warning", "aiokafka08.bridge": "info"} if level == "info" else {}
    # Kazoo warns at each attempt; the command's own error has the reason once.
    quiet = {} if level == "debug" else {"aiokafka08.admin.kazoo": "error"}
    log_to_stderr(level, {**usual, **quiet})


@contextmanager
def _noted_end(status: CopyStatus) -> Iterator[None]:
    """Note the copied amount when the block ends, unless it fails."""
    import time

    from aiokafka08.bridge.copy.copy_rate import summary_text
    from aiokafka08.bridge.errors import BridgeFencedError

    began, text = time.monotonic(), "ended; copied and committed"
    try:
        yield
    except (Terminated, KeyboardInterrupt):
        text = "stopped; all that was copied is committed"
        raise
    except BridgeFencedError:
        text = "fenced by a newer start; copied and committed before"
        raise
    except BaseException:
        text = ""
        raise
    finally:
        erase_status()
        if text and not status.has_begun:
            note("stopped; not started")
        elif text:
            note(f"{text}: {summary_text(status, time.monotonic() - began)}")


async def _show_progress(status: CopyStatus) -> None:
    """Keep a line on the terminal until cancelled."""
    import asyncio

    from aiokafka08.bridge.copy.copy_rate import CopyRate

    loop = asyncio.get_running_loop()
    rate = CopyRate(status, loop.time())
    while True:
        await asyncio.sleep(_PROGRESS_S)
        text = rate.text(loop.time())
        if status.problem is None:
            show_status(text)
        else:
            erase_status()


async def _run(config: BridgeConfig, status: CopyStatus, until_caught_up: bool) -> None:
    import asyncio

    from aiokafka08._core.concurrency.daemon_threads import DaemonThreads
    from aiokafka08.bridge.daemon import run_bridge

    # These threads run ZooKeeper's client and name resolution. As daemons they don't delay a stop,
    # even if a call hangs.
    asyncio.get_running_loop().set_default_executor(DaemonThreads("aiokafka08-bridge"))
    with serve_pages(config, status):
        copy = run_bridge(config, status, until_caught_up=until_caught_up)
        progress = asyncio.create_task(_show_progress(status), name="bridge status line")
        try:
            if config.groups.continuous:
                await _with_groups(copy, config, status)
            else:
                await copy
        finally:
            progress.cancel()
            await asyncio.gather(progress, return_exceptions=True)


async def _with_groups(
    copy: Coroutine[Any, Any, None], config: BridgeConfig, status: CopyStatus
) -> None:
    """Carry groups over while the copy runs. An error of either ends both."""
    import asyncio

    from aiokafka08._tools.cli.commands.bridge_groups import file_offsets
    from aiokafka08.bridge.groups.carry_over import carry_over_continuously

    work = carry_over_continuously(config, file_offsets(config), status)
    tasks = [asyncio.create_task(copy), asyncio.create_task(work, name="bridge groups")]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def serve_pages(config: BridgeConfig, status: CopyStatus) -> Iterator[None]:
    """Serve /metrics and /healthz while the block runs, if the file or option has an address."""
    if config.listen is None:
        yield
        return
    import asyncio

    from aiokafka08._core.metrics.endpoint import MetricsEndpoint
    from aiokafka08._tools.cli.commands.exporter import parse_listen
    from aiokafka08.bridge.copy.status_pages import health_page, metrics_page
    from aiokafka08.bridge.verify.verify_state import last_verification, state_path

    loop = asyncio.get_running_loop()
    host, port = parse_listen(config.listen)

    def metrics() -> Page:
        if (last := last_verification(state_path(config.path))) is not None:
            status.verified_equal, status.verified_at = int(last.is_equal), last.at
        return metrics_page(status, loop.time())

    try:
        endpoint = MetricsEndpoint(
            host,
            port,
            metrics,
            lambda: health_page(status, loop.time()),
            client_id=config.client_id,
        )
    except OSError as error:
        where = f"{host}:{port}"
        raise OSError(error.errno, f"{error.strerror}: choose another --listen", where) from None
    note(f"metrics at {endpoint.url}")
    try:
        yield
    finally:
        endpoint.close()


@command(
    "status",
    fields=FIELDS,
    examples=[Example("How far the copy is", "aiokafka08 bridge status bridge.toml")],
)
@click.argument("file", type=click.Path(path_type=Path))
@format_option
def status_(file: Path, format: str | None) -> int:
    """Show the positions of the copy, as the target has committed them.

    It needs no running bridge, and fences none. If partitions are behind, it looks again after two
    transactions (at most 10 s), and names on stderr those that haven't advanced. The exit code is 1
    if the positions can't be read.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08._tools.cli.table import Grouping
    from aiokafka08.bridge.config import read_config

    problems: list[TargetUnavailableError] = []
    rows, texts = run(_status(read_config(file), problems))
    write_rows(rows, FIELDS, format, grouping=Grouping(("topic", "target"), ("lag",)))
    for text in texts:
        note(text)
    for problem in problems:
        note(
            f"positions unknown: {problem.text}. If 'bridge run' was killed, its last transaction "
            "is open until the target ends it: call 'bridge status' again in a minute"
        )
    return int(bool(problems))


async def _status(
    config: BridgeConfig, problems: list[TargetUnavailableError]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows, and notes on them."""
    import asyncio

    from aiokafka08.bridge.copy.read_progress import (
        other_copies,
        other_copies_text,
        read_progress,
        standstill_text,
        uncopied_topics,
    )

    texts: list[str] = []
    progress = await read_progress(config, problems.append)
    has_begun = any(one.position is not None for one in progress)
    if not problems and has_begun and any(one.lag for one in progress):
        before, seconds = progress, min(2 * config.copy.transaction_s + 1, _LONGEST_LOOK_S)
        await asyncio.sleep(seconds)
        progress = await read_progress(config, problems.append)
        if not problems:
            texts.append(standstill_text(before, progress, seconds))
    if not problems and (others := await other_copies(config, progress)):
        texts.append(other_copies_text(config, uncopied_topics(progress), others))
    elif progress and not problems and not has_begun:
        texts.append(
            "nothing is copied yet: start 'bridge run', or check name, target and rename in "
            f"{config.path}"
        )
    return [one._asdict() for one in progress], [text for text in texts if text]
