"""Whether the members of a group share the partitions, and commit what was handed out. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aiokafka08.testing.history.logs import History, PartitionLog
from aiokafka08.testing.history.operations import Anomaly, Message, Operation, Value, only

_NO_LOG = PartitionLog(())


def double_owners(history: History) -> Iterator[Anomaly]:
    """Two members of a group own a partition in one generation, or at a time.

    A generation lower than the last one is a new beginning, and so is one that a member joins
    twice, or that begins when no member has partitions any more: brokers of 0.9 forget a group that
    loses all its members, and count from 1 again.
    """
    yield from _double_owners_without_generations(history)
    owners: dict[str, dict[tuple[int, str], Operation]] = {}
    last: dict[str, int] = {}
    joined: dict[tuple[str, str], int] = {}
    holders: dict[str, set[str]] = defaultdict(set)
    for one in history.operations:
        if one.call in ("revoked", "stop"):
            for processes in holders.values():
                processes.discard(one.process)
        if one.call != "assigned" or one.group is None or one.generation is None:
            continue
        member = one.group, one.process
        if (
            one.generation < last.get(one.group, 0)
            or one.generation == joined.get(member)
            or not holders[one.group]
        ):
            owners[one.group] = {}
        holders[one.group].add(one.process)
        last[one.group] = joined[member] = one.generation
        of_group = owners.setdefault(one.group, {})
        for partition in one.partitions:
            first = of_group.setdefault((one.generation, partition), one)
            if first.process != one.process:
                yield Anomaly(
                    "double-owner",
                    (first, one),
                    {"group": one.group, "generation": one.generation, "partition": partition},
                )


def _double_owners_without_generations(history: History) -> Iterator[Anomaly]:
    owners: dict[tuple[str, str], Operation] = {}
    # What a listener gives up, it may read until its call; what it gets is its own from then on.
    for one in sorted(history.operations, key=lambda one: one.invoked):
        if one.call not in ("assigned", "revoked", "expired", "stop"):
            continue
        if one.call == "assigned":
            if one.group is None or not one.facts.get("exclusive"):
                continue
            for partition in one.partitions:
                first = owners.setdefault((one.group, partition), one)
                if first.process != one.process:
                    owners[one.group, partition] = one
                    yield Anomaly(
                        "double-owner",
                        (first, one),
                        {"group": one.group, "partition": partition},
                    )
        else:
            given_up = set(one.partitions) if one.call == "revoked" else None
            for key, owner in list(owners.items()):
                if owner.process == one.process and (given_up is None or key[1] in given_up):
                    del owners[key]


def polls_after_revocation(history: History) -> Iterator[Anomaly]:
    """A consumer returned messages of a partition after its revocation had begun."""
    for operations in history.by_process().values():
        if not any(one.call == "revoked" for one in operations):
            continue
        changes = ("assigned", "revoked", "assign", "subscribe")
        # What a listener allows or forbids holds from its call on.
        ordered = sorted(operations, key=lambda o: o.invoked if o.call in changes else o.order)
        revoked: dict[str, Operation] = {}
        for one in ordered:
            if one.call == "revoked":
                revoked.update(dict.fromkeys(one.partitions, one))
            elif one.call in changes:
                revoked = {} if not one.partitions else revoked
                for partition in one.partitions:
                    revoked.pop(partition, None)
            elif one.call != "log":
                for message in one.polled:
                    if message.partition in revoked:
                        witness = only(one, message.partition, [message.value])
                        yield Anomaly(
                            "poll-after-revocation",
                            (revoked.pop(message.partition), witness),
                            {"partition": message.partition, "value": message.value},
                        )


@dataclass(slots=True)
class _Handed:
    """What a group was handed of one partition."""

    group: str
    partition: str
    times: list[float]
    offsets: list[int]
    highest: list[tuple[int, Operation]]

    def before(self, when: float) -> tuple[int, Operation] | None:
        """Return the highest offset that was handed out by a time, and the poll that did."""
        index = bisect_right(self.times, when)
        return self.highest[index - 1] if index else None


def _handed_out(history: History) -> dict[tuple[str, str], _Handed]:
    found: dict[tuple[str, str], _Handed] = {}
    for one in history.polls():
        if one.group is None or one.status != "ok":
            continue
        for message in one.polled:
            key = one.group, message.partition
            for offset in _places(history, message):
                handed = found.setdefault(key, _Handed(*key, [], [], []))
                highest = handed.highest[-1] if handed.highest else (-1, one)
                handed.times.append(one.order)
                handed.offsets.append(offset)
                handed.highest.append(max(highest, (offset, one), key=lambda pair: pair[0]))
    return found


def _places(history: History, message: Message) -> Iterable[int]:
    """Return the offsets that a polled message may have: those of all copies if it names none."""
    if message.offset is not None:
        return (message.offset,)
    return history.logs.get(message.partition, _NO_LOG).places.get(message.value, ())


def group_skips(history: History) -> Iterator[Anomaly]:
    """No member of a group got a message, though members got earlier and later ones.

    Partitions in which a member moved its position aren't judged.
    """
    moved = {
        (one.group, partition)
        for one in history.operations
        if one.call in ("seek", "commit") and (one.call == "seek" or one.facts.get("explicit"))
        for partition in (*one.partitions, *one.offsets)
    }
    for key, handed in _handed_out(history).items():
        log = history.logs.get(handed.partition, _NO_LOG)
        if key in moved:
            continue
        got = set(handed.offsets)
        first, last = log.index_from(min(got)), log.index_from(max(got))
        skipped: list[Value] = [
            value
            for offset, value in log.between(first, last)
            if offset not in got
            and not history.is_excused(handed.partition, offset, value, handed.times[-1])
        ]
        if skipped:
            yield Anomaly(
                "group-skip",
                (),
                {"group": handed.group, "partition": handed.partition, "skipped": skipped},
            )


def commits_ahead(history: History) -> Iterator[Anomaly]:
    """A committed position, or a consumer's position, is past messages that weren't handed out.

    A commit of the member's own position is judged too; only a seek, or offsets that the caller
    chose, may be ahead.
    """
    handed = _handed_out(history)
    # (group, partition) → the times of chosen offsets, and the highest offset until then
    moves: dict[tuple[str, str], tuple[list[float], list[int]]] = {}
    for one in sorted(history.operations, key=lambda one: one.invoked):
        if one.group is not None and (one.call == "seek" or _is_explicit(one)):
            for partition, offset in one.offsets.items():
                times, highest = moves.setdefault((one.group, partition), ([], []))
                times.append(one.invoked)
                highest.append(max(offset, highest[-1] if highest else -1))
    for one in history.operations:
        found = one.call == "committed" and one.status == "ok"
        own = one.call == "commit" and one.status != "fail" and not _is_explicit(one)
        if one.group is None or not (found or own):
            continue
        for partition, offset in one.offsets.items():
            key = one.group, partition
            last = handed[key].before(one.order) if key in handed else None
            times, highest = moves.get(key, ([], []))
            chosen = bisect_right(times, one.order)
            if last is None and not chosen:
                continue
            reached = max(highest[chosen - 1] if chosen else -1, last[0] + 1 if last else -1)
            witness = (*((only(last[1], partition),) if last else ()), one)
            yield from _ahead(history, "commit-ahead", partition, reached, offset, witness)
    yield from _positions_ahead(history)


def _is_explicit(one: Operation) -> bool:
    return one.call == "commit" and bool(one.facts.get("explicit"))


def _positions_ahead(history: History) -> Iterator[Anomaly]:
    for operations in history.by_process().values():
        reached: dict[str, tuple[int, Operation]] = {}
        for one in operations:
            if one.call in ("assign", "subscribe", "assigned", "revoked", "seek"):
                reached = {}
            elif one.call == "position":
                for partition, offset in one.offsets.items():
                    if partition in reached:
                        base, last = reached[partition]
                        witness = only(last, partition), one
                        yield from _ahead(
                            history, "position-ahead", partition, base, offset, witness
                        )
            elif one.call != "log" and one.status == "ok":
                for message in one.polled:
                    if message.offset is not None:
                        reached[message.partition] = message.offset + 1, one


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
        value
        for at, value in log.between(log.index_from(reached), log.index_from(offset))
        if not history.is_excused(partition, at, value, witness[-1].order)
    ]
    if passed:
        facts = {"partition": partition, "handed_out": reached, "offset": offset, "passed": passed}
        yield Anomaly(name, witness, facts)


def commits_behind(history: History) -> Iterator[Anomaly]:
    """The offset store returned a position behind one that the same member had committed.

    A seek, a commit of offsets that the user chose, and another member's commit may set a position
    back: nothing is concluded across them, nor across an assignment in a group with auto-commit.
    """
    automatic = _auto_committing(history)
    floors: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    resets: dict[tuple[str, str], float] = {}
    for one in history.operations:
        if one.group is None:
            continue
        match one.call:
            case "seek" | "assigned":
                if one.call == "assigned" and one.group not in automatic:
                    continue
                for partition in (*one.partitions, *one.offsets):
                    floors.pop((one.group, partition), None)
                    resets[one.group, partition] = one.order
            case "commit":
                for partition in one.partitions:
                    key = one.group, partition
                    if floors[key] and floors[key][-1].process != one.process:
                        floors[key].clear()
                        resets[key] = one.invoked
                for partition, offset in one.offsets.items():
                    key = one.group, partition
                    known = floors[key]
                    if one.facts.get("explicit") or (known and known[-1].process != one.process):
                        known.clear()
                        resets[key] = one.invoked
                    if (
                        one.status == "ok"
                        and one.invoked >= resets.get(key, -1.0)
                        and (not known or offset >= known[-1].offsets[partition])
                    ):
                        known.append(one)
            case "committed" if one.status == "ok":
                for partition in one.partitions or tuple(one.offsets):
                    offset = one.offsets.get(partition, -1)
                    known = floors[one.group, partition]  # in order of time and of offset
                    before = bisect_right(known, one.invoked, key=lambda commit: commit.order)
                    if before and offset < known[before - 1].offsets[partition]:
                        floor = known[before - 1].offsets[partition]
                        if history.was_truncated(partition, one.order, floor):
                            continue  # a member behind the end of the log begins anew
                        yield Anomaly(
                            "commit-behind",
                            (known[before - 1], one),
                            {
                                "group": one.group,
                                "partition": partition,
                                "committed": known[before - 1].offsets[partition],
                                "found": offset,
                            },
                        )


def _auto_committing(history: History) -> set[str | None]:
    """Return the groups with a member that commits automatically, at offsets unknown here."""
    return {one.group for one in history.operations if one.facts.get("auto_commit")}


def commits_ignored(history: History) -> Iterator[Anomaly]:
    """After an assignment, a member began before the offset that its group had committed.

    The committed offset is that of the last commit that had ended before the assignment. A commit
    that may have taken effect after it (it overlapped, came later, or its outcome is unknown) may
    have set the offset back. Nothing is concluded after a seek or a truncation, nor in a group with
    auto-commit.
    """
    automatic = _auto_committing(history)
    commits: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in history.operations:
        if one.call == "commit" and one.status != "fail" and one.group not in automatic:
            for partition in (*one.partitions, *one.offsets):
                commits[one.group or "", partition].append(one)
    for operations in history.by_process().values():
        begins: dict[str, Operation] = {}
        for one in operations:
            match one.call:
                case "assigned":
                    begins = dict.fromkeys(one.partitions, one)
                case "assign" | "subscribe":
                    begins = {}
                case "revoked" | "seek":
                    for partition in (*one.partitions, *one.offsets):
                        begins.pop(partition, None)
                case "log":
                    pass
                case _:
                    for message in one.polled:
                        assigned = begins.pop(message.partition, None)
                        if assigned is None or message.offset is None:
                            continue
                        known = commits.get((assigned.group or "", message.partition), [])
                        last = _last_commit(known, message.partition, assigned.invoked)
                        if last is None or message.offset >= last.offsets[message.partition]:
                            continue
                        committed = _lowest(known, message.partition, last, one.order)
                        if committed is None or message.offset >= committed:
                            continue
                        if history.was_truncated(message.partition, one.order):
                            continue
                        witness = only(one, message.partition, [message.value])
                        yield Anomaly(
                            "commit-ignored",
                            (last, assigned, witness),
                            {
                                "group": assigned.group,
                                "partition": message.partition,
                                "committed": committed,
                                "began": message.offset,
                            },
                        )


def _last_commit(commits: list[Operation], partition: str, when: float) -> Operation | None:
    """Return the last successful commit of a known offset that had ended by a time."""
    ended = bisect_left(commits, when, key=lambda one: one.order)
    before = (commits[number] for number in range(ended - 1, -1, -1))
    return next((one for one in before if one.status == "ok" and partition in one.offsets), None)


def _lowest(commits: list[Operation], partition: str, last: Operation, when: float) -> int | None:
    """Return the lowest offset that a commit may have left, `last` or one that may follow it.

    None: that isn't known.
    """
    offsets = [
        one.offsets.get(partition)
        for one in commits
        if one.invoked <= when and (one.status != "ok" or one.order >= last.invoked)
    ]
    known = [offset for offset in offsets if offset is not None]
    return min(known) if len(known) == len(offsets) else None


CHECKS = (
    double_owners,
    polls_after_revocation,
    group_skips,
    commits_ahead,
    commits_behind,
    commits_ignored,
)
