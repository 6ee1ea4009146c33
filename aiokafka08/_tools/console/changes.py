"""`Changes`: the changes of a cluster that wait for their confirmation, and those carried out.

`change_drafts` makes a `Draft` of what is asked for, `change_pages` shows it. Each change has an
admin client of its own.

Invariants: a change is carried out at most once, within `_VALID_S`, for the session that it was
shown to, and only if the brokers are those that were shown with it. The request for it is recorded
before the change begins, and its outcome when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from aiokafka08 import environment
from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.names import visible
from aiokafka08._core.zookeeper.cluster_check import Agreement, ClusterIdentity, compare_clusters
from aiokafka08._tools.console.watch import ClusterWatch
from aiokafka08.admin import AIOKafkaAdminClient, PlannedOffset
from aiokafka08.errors import IllegalArgumentError, IllegalStateError, KafkaError

_log: Final = logging.getLogger("aiokafka08.console")

KINDS: Final = ("produce", "reset", "topics")
"""The kinds of changes: to produce messages, to reset groups, and to change topics."""

_VALID_S: Final = 600.0
_MOST: Final = 50
"""How many changes are kept beside those that run; a further one replaces the oldest."""
_DRAFTS: Final = 4
"""How many drafts are made at once; further ones wait."""
_PATIENCE_S: Final = 20.0
"""How long a viewer waits for a change; then the page says that the change is still running."""
_STOP_S: Final = 5.0
"""How long a stop waits for changes that are being carried out."""


class ChangeOutcome(NamedTuple):
    """The outcome of a change, in words, and the path of a page that shows the changed object."""

    text: str
    path: str = ""


CarryOut = Callable[[AIOKafkaAdminClient, ClusterIdentity], Awaitable[ChangeOutcome]]
"""Checks that nothing differs from what was shown, and changes the cluster."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A change that was checked, and isn't made yet.

    Attributes:
        title: the change in short, such as "Delete topic orders".
        what: the text for the record: the whole change except keys and values.
        carry_out: makes the change.
        back: the path of the page that the change belongs to.
        notes: sentences for the user.
        plan: the plan of a reset.
        parts: the key, the value and the headers of a message, by name.
        typed_name: the name that the user has to type to confirm; None: nothing has to be typed.
    """

    title: str
    what: str
    carry_out: CarryOut
    back: str
    notes: Sequence[str] = ()
    plan: Sequence[PlannedOffset] = ()
    parts: Sequence[tuple[str, bytes | None]] = ()
    typed_name: str | None = None


MakeDraft = Callable[[AIOKafkaAdminClient], Awaitable[Draft]]


@dataclass(slots=True, eq=False)
class Change:
    """A draft that a session was shown, its state and its outcome."""

    draft: Draft
    cluster: ClusterIdentity
    session: str
    at: float = field(default_factory=time.monotonic)
    change_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    outcome: ChangeOutcome = field(default_factory=lambda: ChangeOutcome(""))


def allowed_kinds(names: Iterable[str], option: str = "allow") -> tuple[str, ...]:
    """Return the kinds of changes that are named in comma-separated texts.

    Args:
        names: the texts.
        option: what an error calls them (default "allow").

    Raises:
        IllegalArgumentError: there is no such kind.
    """
    names = [names] if isinstance(names, str) else list(names)
    given = [name.strip() for text in names for name in text.split(",")]
    for name in given:
        if name not in KINDS:
            raise IllegalArgumentError(f"{option}={name!r}: expected some of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in given)


class Changes:
    """The changes of one cluster.

    Args:
        watch: has the options of the clients.
        allowed: the kinds that may be carried out.
        record: called before and after each change, with a text that says who changes what.

    Attributes:
        allowed: as given.
    """

    def __init__(
        self, watch: ClusterWatch, allowed: Collection[str], record: Callable[[str], object]
    ) -> None:
        self.allowed = allowed
        self._watch, self._on_record = watch, record
        self._changes: dict[str, Change] = {}
        self._drafts = asyncio.Semaphore(_DRAFTS)
        self._one_at_a_time = asyncio.Lock()
        self._tasks = TaskSet()

    async def draft(self, make: MakeDraft) -> tuple[Draft, ClusterIdentity]:
        """Return a draft, and the brokers that it was made with; nothing is changed.

        Raises:
            NotRunningError: the console isn't running.
            KafkaError: the change isn't possible, or the cluster can't be read.
        """
        self._watch.check_running()
        async with self._drafts, AIOKafkaAdminClient(**self._watch.options) as admin:
            return await make(admin), await _cluster_of(admin)

    def keep(self, draft: Draft, cluster: ClusterIdentity, session: str) -> Change:
        """Keep a draft as a change that waits for its confirmation, and return the change."""
        change = Change(draft, cluster, session)
        valid = [*filter(_is_valid, self._changes.values())]
        running = [one for one in valid if one.state == "running"]
        others = [one for one in valid if one.state != "running"][1 - _MOST :]
        self._changes = {one.change_id: one for one in (*running, *others, change)}
        return change

    def find(self, change_id: str, session: str | None) -> Change | None:
        """Return a change that this session was shown; None if there is none, or it is too old."""
        change = self._changes.get(change_id)
        is_known = change is not None and change.session == session and _is_valid(change)
        return change if is_known else None

    async def carry_out(self, change: Change, who: str) -> None:
        """Make a change that is now confirmed. Return at its end, or earlier if it takes long.

        Args:
            change: the change; its `state` and `outcome` are updated.
            who: who has confirmed it.
        """
        if change.state != "waiting":
            return
        self._watch.check_running()
        change.state = "running"
        self._record(f"{who}: {change.draft.what}, on {self.cluster_text(change.cluster)}")
        task = self._tasks.start(self._run(change, who))
        await asyncio.wait([task], timeout=_PATIENCE_S)

    def cluster_text(self, cluster: ClusterIdentity) -> str:
        """Return a text that names a cluster by its brokers."""
        if cluster.brokers:
            return f"brokers {cluster}"
        return f"the cluster at {self._watch.servers}, which names no broker before its first topic"

    async def stop(self) -> None:
        """Wait for the changes that are being carried out, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self._tasks.wait()
        await self._tasks.cancel()

    def _record(self, text: str) -> None:
        self._on_record(visible(text))

    async def _run(self, change: Change, who: str) -> None:
        state: Literal["done", "failed"] = "failed"
        outcome = ChangeOutcome(
            "The console was stopped meanwhile: whether it was done isn't known"
        )
        try:
            async with self._one_at_a_time, AIOKafkaAdminClient(**self._watch.options) as admin:
                cluster = await _cluster_of(admin)
                await _refuse_another(change.cluster, cluster)
                outcome = await change.draft.carry_out(admin, cluster)
            state = "done"
        except KafkaError as error:
            outcome = ChangeOutcome(error.text)
        except Exception:
            outcome = ChangeOutcome("The console has a bug: its log has the details")
            _log.exception("internal error: %s", change.draft.what)
        finally:
            change.state, change.outcome, change.at = state, outcome, time.monotonic()
            self._record(f"{who}: {change.draft.what}: {state}: {outcome.text}")


def _is_valid(change: Change) -> bool:
    return change.state == "running" or time.monotonic() - change.at < _VALID_S


async def _cluster_of(admin: AIOKafkaAdminClient) -> ClusterIdentity:
    described = await admin.describe_cluster()
    return ClusterIdentity(
        {one["node_id"]: [(one["host"], one["port"])] for one in described["brokers"]},
        described["cluster_id"],
    )


async def _refuse_another(shown: ClusterIdentity, now: ClusterIdentity) -> None:
    """Raise IllegalStateError unless the brokers are those of the cluster that was shown."""
    if not shown.brokers and not now.brokers:
        # Brokers of 0.8 name no broker before the first topic. The admin client then compares
        # ZooKeeper with the bootstrap addresses.
        return
    agreement = await asyncio.to_thread(compare_clusters, shown, now, environment.resolve)
    if agreement is not Agreement.SAME:
        raise IllegalStateError(
            f"nothing was changed: this was confirmed for {shown}; the brokers are now {now}. "
            "Check which cluster the addresses lead to, and begin again"
        )
