"""Check that the members of a group share partitions and commit only delivered messages. Pure.

The docstring of each check describes the anomaly that it yields.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aiokafka08.testing.history.extremes import Extremes, RangeMinimum
from aiokafka08.testing.history.logs import History, ObservedLog
from aiokafka08.testing.history.operations import Anomaly, Fact, Message, Operation, Value, only

_NO_LOG: Final = ObservedLog(())
# How long a member may be unaware that its ZooKeeper session has ended.
EXPIRY_UNKNOWN_S: Final = 0.5

# The brokers' default of `group.max.session.timeout.ms`.
LONGEST_SESSION_S: Final = 30.0


def double_owners(history: History) -> Iterator[Anomaly]:
    """Two members of a group own a partition in one generation, or at the same time."""
    yield from _double_owners_without_generations(history)
    owners: dict[str, dict[tuple[int, str], Operation]] = {}
    last: dict[str, int] = {}
    began: dict[str, float] = {}  # by group: when the last generation was first assigned
    joined: dict[tuple[str, str], int] = {}
    holders: dict[str, set[str]] = defaultdict(set)
    for operation in history.operations:
        if operation.call in ("revoked", "stop") or _is_failed_start(operation):
            for processes in holders.values():
                processes.discard(operation.process)
        if operation.call != "assigned" or operation.group is None or operation.generation is None:
            continue
        member = operation.group, operation.process
        # Brokers of 0.9 forget a group that loses all its members, and count generations from 1
        # again. That has happened if the number has fallen, if a member joins the same generation
        # twice, if no member has partitions any more, or if a member is assigned to the same
        # generation more than a session timeout after the first member was.
        is_last = operation.generation == last.get(operation.group)
        if (
            operation.generation < last.get(operation.group, 0)
            or operation.generation == joined.get(member)
            or not holders[operation.group]
            or (is_last and operation.order > began[operation.group] + _session_s(operation))
        ):
            owners[operation.group] = {}
            is_last = False
        if not is_last:
            began[operation.group] = operation.order
        holders[operation.group].add(operation.process)
        last[operation.group] = joined[member] = operation.generation
        of_group = owners.setdefault(operation.group, {})
        for partition in operation.partitions:
            first = of_group.setdefault((operation.generation, partition), operation)
            if first.process != operation.process:
                yield Anomaly(
                    "double-owner",
                    (only(first, partition), only(operation, partition)),
                    {
                        "group": operation.group,
                        "generation": operation.generation,
                        "partition": partition,
                    },
                )


def _session_s(assigned: Operation) -> float:
    """Return how long a member may take to synchronize with its generation."""
    session_s = assigned.facts.get("session_s")
    return float(session_s) if isinstance(session_s, int | float) else LONGEST_SESSION_S


def _double_owners_without_generations(history: History) -> Iterator[Anomaly]:
    owners: dict[tuple[str, str], Operation] = {}
    owned: dict[str, set[tuple[str, str]]] = defaultdict(set)  # process → (group, partition)
    for operation in sorted(history.operations, key=_changes_owners_at):
        changes = operation.call in ("assigned", "revoked", "expired", "stop")
        if not changes and not _is_failed_start(operation):
            continue
        if operation.call == "assigned":
            if operation.group is None or not operation.facts.get("exclusive"):
                continue
            for partition in operation.partitions:
                key = operation.group, partition
                first = owners.setdefault(key, operation)
                owned[operation.process].add(key)
                if first.process != operation.process:
                    owners[key] = operation
                    owned[first.process].discard(key)
                    if first.generation is not None and operation.generation is None:
                        # The brokers were downgraded to 0.8. They don't know the group, so no
                        # broker has told the first member that the group ended.
                        continue
                    yield Anomaly(
                        "double-owner",
                        (only(first, partition), only(operation, partition)),
                        {"group": operation.group, "partition": partition},
                    )
        else:
            mine = owned[operation.process]
            given_up = set(operation.partitions) if operation.call == "revoked" else None
            for key in [key for key in mine if given_up is None or key[1] in given_up]:
                mine.discard(key)
                del owners[key]


def _is_failed_start(operation: Operation) -> bool:
    """Return whether a failed start has stopped its client, which calls no listener then."""
    return operation.call == "start" and operation.status in ("fail", "unknown")


def _changes_owners_at(operation: Operation) -> float:
    # A member may read revoked partitions until its listener's call, and assigned ones from then
    # on.
    return operation.order if _is_failed_start(operation) else operation.invoked


def polls_after_revocation(history: History) -> Iterator[Anomaly]:
    """A consumer returned messages of a partition after its revocation had begun."""
    for operations in history.by_process.values():
        if not any(operation.call == "revoked" for operation in operations):
            continue
        changes = ("assigned", "revoked", "assign", "subscribe")
        # A listener allows or forbids partitions from its call on.
        ordered = sorted(operations, key=lambda o: o.invoked if o.call in changes else o.order)
        revoked: dict[str, Operation] = {}
        for operation in ordered:
            if operation.call == "revoked":
                revoked.update(dict.fromkeys(operation.partitions, operation))
            elif operation.call in changes:
                revoked = {} if not operation.partitions else revoked
                for partition in operation.partitions:
                    revoked.pop(partition, None)
            elif operation.call != "log":
                for message in operation.polled:
                    if message.partition in revoked:
                        witness = only(operation, message.partition, [message.value])
                        yield Anomaly(
                            "poll-after-revocation",
                            (only(revoked.pop(message.partition), message.partition), witness),
                            {"partition": message.partition, "value": message.value},
                        )


@dataclass(slots=True)
class _Handed:
    """The messages of one partition that a group got, in order, as parallel lists."""

    group: str
    partition: str
    times: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    polls: list[tuple[Operation, Value]] = field(default_factory=list)
    # For each index, the index of the highest offset up to there.
    highest: list[int] = field(default_factory=list)

    def add(self, poll: Operation, value: Value, offset: int) -> None:
        place = len(self.offsets)
        is_highest = not place or offset > self.offsets[self.highest[-1]]
        self.highest.append(place if is_highest else self.highest[-1])
        self.times.append(poll.order)
        self.offsets.append(offset)
        self.polls.append((poll, value))

    def poll(self, place: int) -> Operation:
        """Return the poll that handed out this message, without its other messages."""
        poll, value = self.polls[place]
        return only(poll, self.partition, [value])

    def before(self, when: float) -> int | None:
        """Return the index of the highest offset that was handed out by a time; or None."""
        index = bisect_right(self.times, when)
        return self.highest[index - 1] if index else None

    def around(self, offset: int) -> tuple[int, int]:
        """Return the indices of the nearest offsets before and after one that wasn't handed out."""
        before = max((at, -place) for place, at in enumerate(self.offsets) if at < offset)
        after = min((at, place) for place, at in enumerate(self.offsets) if at > offset)
        return -before[1], after[1]


def _handed_out(history: History) -> dict[tuple[str, str], _Handed]:
    handed: dict[tuple[str, str], _Handed] = {}
    for poll in history.polls():
        if poll.group is None or poll.status != "ok":
            continue
        for message in poll.polled:
            key = poll.group, message.partition
            for offset in _places(history, message):
                if key not in handed:
                    handed[key] = _Handed(*key)
                handed[key].add(poll, message.value, offset)
    return handed


def _places(history: History, message: Message) -> Iterable[int]:
    """Return the offsets that a polled message may have: its own, or else those of all copies."""
    if message.offset is not None:
        return (message.offset,)
    return history.logs.get(message.partition, _NO_LOG).places.get(message.value, ())


def group_skips(history: History) -> Iterator[Anomaly]:
    """No member of a group got a message, though members got earlier and later ones."""
    moved = {
        (operation.group, partition)
        for operation in history.operations
        if operation.call in ("seek", "commit")
        and (operation.call == "seek" or operation.facts.get("explicit"))
        for partition in (*operation.partitions, *operation.offsets)
    }
    for key, handed in _handed_out(history).items():
        log = history.logs.get(handed.partition, _NO_LOG)
        # A member moved its position, so a gap proves nothing.
        if key in moved:
            continue
        got = set(handed.offsets)
        first, last = log.index_from(min(got)), log.index_from(max(got))
        skipped = [
            (offset, value)
            for offset, value in log.between(first, last)
            if offset not in got
            and not history.is_excused(handed.partition, offset, value, handed.times[-1])
        ]
        if skipped:
            offset, value = skipped[0]
            before, after = handed.around(offset)
            source = history.source(handed.partition, value, offset)
            values = [value for _, value in skipped]
            yield Anomaly(
                "group-skip",
                (*(() if source is None else (source,)), handed.poll(before), handed.poll(after)),
                {"group": handed.group, "partition": handed.partition, "skipped": values},
            )


def commits_ahead(history: History) -> Iterator[Anomaly]:
    """A committed position, or a consumer's position, is past messages that weren't handed out."""
    handed = _handed_out(history)
    # A commit of the member's own position is judged too; only a seek, or offsets that the caller
    # chose, may be ahead. (group, partition) → the times of chosen offsets, and the highest offset
    # until then
    moves: dict[tuple[str, str], tuple[list[float], list[tuple[int, Operation]]]] = {}
    for operation in sorted(history.operations, key=lambda operation: operation.invoked):
        if operation.group is not None and (operation.call == "seek" or _is_explicit(operation)):
            for partition, offset in operation.offsets.items():
                times, highest = moves.setdefault((operation.group, partition), ([], []))
                times.append(operation.invoked)
                keeps = highest and highest[-1][0] >= offset
                highest.append(highest[-1] if keeps else (offset, operation))
    for operation in history.operations:
        fetched = operation.call == "committed" and operation.status == "ok"
        own = (
            operation.call == "commit"
            and operation.status != "fail"
            and not _is_explicit(operation)
        )
        if operation.group is None or not (fetched or own):
            continue
        for partition, offset in operation.offsets.items():
            key = operation.group, partition
            place = handed[key].before(operation.order) if key in handed else None
            times, highest = moves.get(key, ([], []))
            chosen = bisect_right(times, operation.order)
            if place is None and not chosen:
                continue
            reached, base = highest[chosen - 1] if chosen else (-1, operation)
            handed_out = -1 if place is None else handed[key].offsets[place] + 1
            if offset <= max(reached, handed_out):
                continue
            if place is not None and handed_out > reached:
                reached, base = handed_out, handed[key].poll(place)
            witness = only(base, partition), only(operation, partition)
            yield from _ahead(history, "commit-ahead", partition, reached, offset, witness)
    yield from _positions_ahead(history)


def _is_explicit(operation: Operation) -> bool:
    return operation.call == "commit" and bool(operation.facts.get("explicit"))


def _positions_ahead(history: History) -> Iterator[Anomaly]:
    for operations in history.by_process.values():
        reached: dict[str, tuple[int, Operation, Value]] = {}
        for operation in operations:
            if operation.call in ("assign", "subscribe", "assigned", "revoked", "seek"):
                reached = {}
            elif operation.call == "position":
                for partition, offset in operation.offsets.items():
                    if partition in reached and offset > reached[partition][0]:
                        base, last, value = reached[partition]
                        witness = only(last, partition, [value]), only(operation, partition)
                        yield from _ahead(
                            history, "position-ahead", partition, base, offset, witness
                        )
            elif operation.call != "log" and operation.status == "ok":
                for message in operation.polled:
                    if message.offset is not None:
                        reached[message.partition] = message.offset + 1, operation, message.value


def _ahead(
    history: History,
    name: str,
    partition: str,
    reached: int,
    offset: int,
    witness: tuple[Operation, ...],
) -> Iterator[Anomaly]:
    log = history.logs.get(partition, _NO_LOG)
    passed = [
        (value, at)
        for at, value in log.between(log.index_from(reached), log.index_from(offset))
        if not history.is_excused(partition, at, value, witness[-1].order)
    ]
    if passed:
        values = [value for value, _ in passed]
        facts = {"partition": partition, "handed_out": reached, "offset": offset, "passed": values}
        source = history.source(partition, *passed[0])
        yield Anomaly(name, (*(() if source is None else (source,)), *witness), facts)


def commits_behind(history: History) -> Iterator[Anomaly]:
    """The offset store returned a position lower than one that the same member had committed.

    A seek, a commit of offsets that the user chose, and another member's commit may set a position
    back, so nothing is concluded across them, nor across an assignment in a group with auto-commit.
    Where the store was observed, it isn't expected to return a higher offset than it held.
    """
    automatic = _auto_committing(history)
    held = _Held(history)
    floors: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    resets: dict[tuple[str, str], float] = {}
    for operation in history.operations:
        if operation.group is None:
            continue
        match operation.call:
            case "seek" | "assigned":
                if operation.call == "assigned" and operation.group not in automatic:
                    continue
                for partition in (*operation.partitions, *operation.offsets):
                    floors.pop((operation.group, partition), None)
                    resets[operation.group, partition] = operation.order
            case "commit":
                for partition in operation.partitions:
                    key = operation.group, partition
                    if floors[key] and floors[key][-1].process != operation.process:
                        floors[key].clear()
                        resets[key] = operation.invoked
                for partition, offset in operation.offsets.items():
                    key = operation.group, partition
                    known = floors[key]
                    if operation.facts.get("explicit") or (
                        known and known[-1].process != operation.process
                    ):
                        known.clear()
                        resets[key] = operation.invoked
                    if (
                        operation.status == "ok"
                        and operation.invoked >= resets.get(key, -1.0)
                        and (not known or offset >= known[-1].offsets[partition])
                    ):
                        known.append(operation)
            case "committed" if operation.status == "ok":
                for partition in operation.partitions or tuple(operation.offsets):
                    offset = operation.offsets.get(partition, -1)
                    known = floors[operation.group, partition]  # in order of time and of offset
                    before = bisect_right(known, operation.invoked, key=lambda commit: commit.order)
                    if before and offset < known[before - 1].offsets[partition]:
                        floor = known[before - 1].offsets[partition]
                        if history.was_truncated(partition, operation.order, floor):
                            continue  # a member beyond the end of the log begins anew
                        key = operation.group, partition
                        if offset >= held.lowest(key, operation.invoked, operation.order):
                            continue  # `commits_gone_back` checks the stored commits
                        yield Anomaly(
                            "commit-behind",
                            (only(known[before - 1], partition), only(operation, partition)),
                            {
                                "group": operation.group,
                                "partition": partition,
                                "committed": known[before - 1].offsets[partition],
                                "found": offset,
                            },
                        )


def commits_gone_back(history: History) -> Iterator[Anomaly]:
    """A commit of a member's own position set the committed offset of its group back.

    The program may set it back: with a seek since the assignment, or a commit of offsets that the
    caller chose. So may a reset after a truncation. Commits that may arrive late aren't judged:

    - those of one member on two connections;
    - those of a member that no longer owns the partition, unless the store refuses them by their
      generation;
    - in ZooKeeper, those just after the end of a session, which its member may not have noticed;
    - in ZooKeeper, those of a member of Kafka's group whose brokers were downgraded to 0.8, when a
      member in ZooKeeper owns the partition.
    """
    state = _Ownership()
    reached = _Reached(history)
    current: dict[tuple[str, str, Fact], tuple[Operation, bool]] = {}
    calls = ("stored", "assigned", "expired", "seek", "commit")
    relevant = [operation for operation in history.operations if operation.call in calls]
    # Chosen offsets may be stored before the call that chose them ends.
    for operation in sorted(relevant, key=lambda operation: operation.invoked):
        if operation.call != "stored" or operation.group is None:
            state.note(operation)
            continue
        store = operation.facts.get("store", "")
        for partition, offset in operation.offsets.items():
            key = operation.group, partition, store
            may_be_late = state.may_be_late(operation, partition, store)
            last, was_late = current.get(key, (operation, False))
            current[key] = operation, may_be_late
            if (
                offset >= last.offsets[partition]
                or may_be_late
                or was_late
                or state.is_chosen(operation.process, partition, offset)
                or history.was_truncated(
                    partition,
                    operation.order,
                    max(last.offsets[partition], reached.position(operation, partition)),
                )
                or (
                    operation.process == last.process
                    and operation.facts.get("connection") != last.facts.get("connection")
                )
            ):
                continue
            yield Anomaly(
                "commit-went-back",
                (only(last, partition), only(operation, partition)),
                {
                    "group": operation.group,
                    "partition": partition,
                    "store": store,
                    "before": last.offsets[partition],
                    "now": offset,
                },
            )


class _Reached:
    """How far each member had read; its position may be beyond what it has committed."""

    def __init__(self, history: History) -> None:
        pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for operation in history.polls():
            for message in operation.polled:
                if message.offset is not None:
                    key = operation.process, message.partition
                    pairs[key].append((operation.order, message.offset + 1))
        self._positions = {key: Extremes(found) for key, found in pairs.items()}

    def position(self, stored: Operation, partition: str) -> float:
        """Return the member's highest position before a commit; minus infinity without one."""
        known = self._positions.get((stored.process, partition))
        return -math.inf if known is None else known.highest_before(stored.order)


class _Ownership:
    """The owners of partitions, the choices of programs, and sessions that have just ended."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], Operation] = {}
        self._assigned: dict[str, Operation] = {}  # by process: the last assignment
        # By process and partition: the lowest offset that the program has chosen
        self._chosen: dict[tuple[str, str], float] = {}
        self._expired: dict[str, float] = {}

    def note(self, operation: Operation) -> None:
        """Note what an operation changes."""
        match operation.call:
            case "assigned":
                self._assigned[operation.process] = operation
                for partition in operation.partitions:
                    self._owners[operation.group or "", partition] = operation
                    self._chosen.pop((operation.process, partition), None)
            case "expired":
                self._expired[operation.process] = operation.order
            case "commit" if not _is_explicit(operation):
                pass
            case "seek" | "commit":
                for partition in (*operation.partitions, *operation.offsets):
                    key = operation.process, partition
                    offset = operation.offsets.get(partition, -math.inf)
                    self._chosen[key] = min(self._chosen.get(key, math.inf), offset)

    def is_chosen(self, process: str, partition: str, offset: int) -> bool:
        """Whether a process may commit an offset because its program chose it or a lower one."""
        return self._chosen.get((process, partition), math.inf) <= offset

    def may_be_late(self, stored: Operation, partition: str, store: Fact) -> bool:
        """Whether a commit may come from a member that no longer owns the partition."""
        owner = self._owners.get((stored.group or "", partition))
        is_former = owner is None or owner.process != stored.process
        if store == "zookeeper":
            ended = self._expired.get(stored.process, -math.inf)
            mine = self._assigned.get(stored.process)
            # As in `double_owners`: no broker tells a member that its group doesn't exist any more.
            is_unaware = (
                is_former
                and (mine is not None and mine.generation is not None)
                and (owner is not None and owner.generation is None)
            )
            return stored.order <= ended + EXPIRY_UNKNOWN_S or is_unaware
        return stored.generation is None and is_former


def _auto_committing(history: History) -> set[str | None]:
    """Return the groups with auto-commit; the history lacks the offsets of such commits."""
    return {
        operation.group for operation in history.operations if operation.facts.get("auto_commit")
    }


def commits_ignored(history: History) -> Iterator[Anomaly]:
    """After an assignment, a member began before the offset that its group had committed.

    The committed offset is that of the last commit that had ended before the assignment. A commit
    that may have taken effect later (it overlapped that one, came after it, or has an unknown
    outcome) may have set the offset back. Nothing is concluded after a seek or a truncation, nor in
    a group with auto-commit. Where the store was observed, a member isn't expected to begin after
    the offset that the store held; `commits_gone_back` judges whether the store may hold that.
    """
    automatic = _auto_committing(history)
    held = _Held(history)
    commits_by_key: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if (
            operation.call == "commit"
            and operation.status != "fail"
            and operation.group not in automatic
        ):
            for partition in (*operation.partitions, *operation.offsets):
                commits_by_key[operation.group or "", partition].append(operation)
    commits = {key: _Commits(key[1], ordered) for key, ordered in commits_by_key.items()}
    for operations in history.by_process.values():
        begins: dict[str, Operation] = {}
        for operation in operations:
            match operation.call:
                case "assigned":
                    begins = dict.fromkeys(operation.partitions, operation)
                case "assign" | "subscribe":
                    begins = {}
                case "revoked" | "seek":
                    for partition in (*operation.partitions, *operation.offsets):
                        begins.pop(partition, None)
                case "log":
                    pass
                case _:
                    for message in operation.polled:
                        assigned = begins.pop(message.partition, None)
                        if assigned is None or message.offset is None:
                            continue
                        key = assigned.group or "", message.partition
                        known = commits.get(key)
                        last = None if known is None else known.last_before(assigned.invoked)
                        if known is None or last is None:
                            continue
                        committed = min(
                            known.lowest(last, operation.order),
                            held.lowest(key, assigned.invoked, operation.order),
                        )
                        if message.offset >= committed:
                            continue
                        if history.was_truncated(message.partition, operation.order):
                            continue
                        witness = only(operation, message.partition, [message.value])
                        yield Anomaly(
                            "commit-ignored",
                            (
                                only(last, message.partition),
                                only(assigned, message.partition),
                                witness,
                            ),
                            {
                                "group": assigned.group,
                                "partition": message.partition,
                                "committed": committed,
                                "began": message.offset,
                            },
                        )


class _Held:
    """What the offset stores held at each time, as far as they were observed (`stored`)."""

    def __init__(self, history: History) -> None:
        pairs: dict[tuple[str, str], dict[Fact, list[tuple[float, float]]]] = {}
        for operation in history.operations:
            if operation.call == "stored" and operation.group is not None:
                for partition, offset in operation.offsets.items():
                    stores = pairs.setdefault((operation.group, partition), {})
                    store = operation.facts.get("store", "")
                    stores.setdefault(store, []).append((operation.order, offset))
        self._offsets = {
            key: [([at for at, _ in held], RangeMinimum(held)) for held in stores.values()]
            for key, stores in pairs.items()
        }

    def lowest(self, key: tuple[str, str], first: float, last: float) -> float:
        """Return the lowest offset of a group and partition that was held within a range of times;
        infinity if that isn't known. Of two stores the higher offset counts, as for members."""
        found = []
        for times, offsets in self._offsets.get(key, ()):
            before = bisect_right(times, first)
            lowest = offsets.lowest(times[before - 1] if before else first, last)
            found += [lowest] if lowest < math.inf else []
        return max(found, default=math.inf)


class _Commits:
    """The commits of one group to one partition that may have had an effect."""

    def __init__(self, partition: str, commits: list[Operation]) -> None:
        """Index commits, given in order. One without the partition's offset may set any offset."""
        self._partition = partition
        successful = [commit for commit in commits if commit.status == "ok"]
        self._known = [commit for commit in successful if partition in commit.offsets]
        self._doubtful = Extremes((o.invoked, self._offset(o)) for o in commits if o.status != "ok")
        self._successful = RangeMinimum((o.invoked, self._offset(o)) for o in successful)
        # By the time when a known commit began: the lowest offset of the commits in flight then.
        self._overlapping: dict[float, float] = {}
        running: list[tuple[float, float]] = []  # (offset, end)
        for commit in sorted(successful, key=lambda commit: commit.invoked):
            while running and running[0][1] < commit.invoked:
                heapq.heappop(running)
            self._overlapping[commit.invoked] = running[0][0] if running else math.inf
            heapq.heappush(running, (self._offset(commit), commit.order))

    def _offset(self, commit: Operation) -> float:
        return commit.offsets.get(self._partition, -math.inf)

    def last_before(self, when: float) -> Operation | None:
        """Return the last successful commit of a known offset that had ended by a time; or None."""
        ended = bisect_left(self._known, when, key=lambda commit: commit.order)
        return self._known[ended - 1] if ended else None

    def lowest(self, last: Operation, when: float) -> float:
        """Return the lowest offset that a commit may have left: `last`, or one that may follow it.

        Minus infinity if it isn't known.
        """
        return min(
            self._doubtful.lowest_until(when),
            self._successful.lowest(last.invoked, when),
            self._overlapping[last.invoked],
        )


CHECKS: Final = (
    double_owners,
    polls_after_revocation,
    group_skips,
    commits_ahead,
    commits_behind,
    commits_gone_back,
    commits_ignored,
)
