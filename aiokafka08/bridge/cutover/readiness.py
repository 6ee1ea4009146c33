"""The steps of a cut-over, and whether each is ready now: a method of `Readiness` for each.

Invariant: nothing here changes anything at either cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from aiokafka08._wording import counted, partition_name, some_of
from aiokafka08.admin.group_lag import LogBounds
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.groups.carry_over import (
    FileOffsets,
    GroupTransfer,
    copied_partitions,
    source_members,
    source_offsets,
    unmatched_groups,
)
from aiokafka08.bridge.groups.group_plan import GroupMove
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.source.range_records import RangeRecords
from aiokafka08.bridge.source.source_clients import (
    copied_topics,
    source_admin,
    source_router,
    source_topic_configs,
    unreadable_topics,
)
from aiokafka08.bridge.source.source_release import left_out
from aiokafka08.bridge.target.filled_topics import filled_text, filled_topics
from aiokafka08.bridge.target.message_limits import TargetLimits, is_expired, refusal
from aiokafka08.bridge.target.own_topics import own_topic_problems
from aiokafka08.bridge.target.target_cluster import TopicSpec
from aiokafka08.bridge.target.topic_plan import plan_topics, refused_by_target
from aiokafka08.bridge.target.when_available import when_available
from aiokafka08.bridge.verify.verification import PartitionVerdict
from aiokafka08.bridge.verify.verify_state import last_verification, state_path
from aiokafka08.bridge.wording import GUARANTEE, equal_text
from aiokafka08.structs import ConsumerRecord, TopicPartition

# How many messages are read at either end of a partition, without `scan`.
_SAMPLE: Final = 100


@dataclass(frozen=True, slots=True)
class Step:
    """A condition of the cut-over; `detail` has the finding, and what to do."""

    step: str
    is_ready: bool
    detail: str
    # 'bridge run' still has to create topics at the target; nothing else is wrong.
    is_missing: bool = False
    # Consumers aren't ready because [groups] needs a change.
    is_wrong: bool = False
    # All offsets of the groups are at the target already, or the consumers read on there.
    is_carried: bool = False
    # The copy isn't at the end, but has advanced since the step 'producers', so 'bridge run' is up.
    is_advancing: bool = False
    # A verification has found a difference, which the next one would find again.
    is_different: bool = False
    # Groups have offsets in topics that the bridge doesn't copy.
    leaves_out: bool = False


# What to do about a step that isn't ready, in the order in which it is done.
_NEXT: Final = {
    "topics": "mend what the step 'topics' names",
    "messages": "mend what the step 'messages' names",
    "copy": "start 'bridge run', and let it reach the end; then 'bridge verify'",
    "verification": "run 'bridge verify'",
    "producers": "stop producers and consumers, then 'bridge cutover --execute'",
    "consumers": "stop the consumers that the step 'consumers' names, or mend [groups]",
    "groups": "see the step 'groups'",
}


def next_action(steps: Iterable[Step]) -> str:
    """Return what to do next, given all steps."""
    by_name = {step.step: step for step in steps}
    left = {name: step for name, step in by_name.items() if not step.is_ready}
    if is_done(by_name.values()):
        but = ", but for what the step 'groups' names" if by_name["groups"].leaves_out else ""
        return (
            "nothing to do but to start the consumers, then the producers, at the target, if they "
            f"don't run there yet; then stop 'bridge run'. The groups are carried over{but}"
        )
    if "topics" in left and not left["topics"].is_missing:
        return _NEXT["topics"]
    if "messages" in left:
        return _NEXT["messages"]
    if "consumers" in left and left["consumers"].is_wrong:
        return "mend [groups]: see the step 'consumers'"
    if "topics" in left:
        return "start 'bridge run', which creates the topics"
    if "copy" in left and left["copy"].is_advancing:
        if "producers" in left:
            return "stop the producers when 'bridge run' is near the end; then 'bridge verify'"
        return "let 'bridge run' reach the end; then 'bridge verify'"
    if "copy" not in left and "verification" in left and left["verification"].is_different:
        return "see the step 'verification': another 'bridge verify' would find the same"
    texts = (text for step, text in _NEXT.items() if step in left)
    return next(texts, "stop producers and consumers, then 'bridge cutover --execute'")


def is_done(steps: Iterable[Step]) -> bool:
    """Return whether the cut-over is done: the groups are at the target, the source is quiet."""
    by_name = {step.step: step for step in steps}
    ready = {name for name, step in by_name.items() if step.is_ready}
    carried = {name for name, step in by_name.items() if step.is_carried}
    # A running bridge may have carried the groups over (`continuous`), before both sides were
    # compared. So the groups must read on at the target, or the sides must have been compared.
    return (
        {"topics", "producers", "copy", "consumers", "groups"} <= ready
        and "groups" in carried
        and ("verification" in ready or "consumers" in carried)
    )


class Readiness:
    """Looks at both clusters; `close()` ends the connection to the target.

    Args:
        config: the file of the bridge.
        file_offsets: the offsets of the groups' file, for `store = "file"` (default None).
    """

    def __init__(self, config: BridgeConfig, file_offsets: FileOffsets | None = None) -> None:
        self._config, self._file_offsets = config, file_offsets or {}
        self.transfer = GroupTransfer(config, file_offsets)
        # The copy's positions when `producers` was called. `copy` compares them with the new ones.
        self._positions: Mapping[TopicPartition, int | None] = {}

    async def close(self) -> None:
        """Close the connection to the target."""
        await self.transfer.close()

    async def guarantee(self) -> Step:
        """Return the guarantee of the copy, and the data of newer sources (0.11) that it omits.

        Raises:
            KafkaError: the source doesn't respond.
        """
        texts = [GUARANTEE, await left_out(self._config)]
        return Step("guarantee", True, ". But ".join(filter(None, texts)))

    async def topics(self) -> Step:
        """Return whether the target has, or can get, each topic.

        Raises:
            KafkaError: a cluster doesn't respond.
        """
        async with source_admin(self._config) as admin:
            described = await admin.describe_topics()
            configs = await source_topic_configs(self._config, admin)
            if texts := await unreadable_topics(self._config, admin):
                return Step("topics", False, f"can't be read: {some_of(texts, separator='. ')}")
        counts = {topic["topic"]: len(topic["partitions"]) for topic in described}
        pairs = self._config.topics.pairs(counts)
        target_counts = await when_available(self.transfer.target.partition_counts)
        missing = {name for name in pairs.values() if name not in target_counts}
        plan = plan_topics(self._config, counts, target_counts, configs, ())
        wrong = [
            f"{name} has {target_counts[name]} partitions, and {topic} {counts[topic]}"
            if name in target_counts
            else plan.refused[topic]
            for topic, name in pairs.items()
            if topic in plan.refused
        ]
        created: list[str] = []
        if not wrong:
            target = self.transfer.target
            refused = await when_available(lambda: refused_by_target(self._config, target, plan))
            wrong = [f"{name}: {topic.text}" for name, topic in refused.items()]
            created = [_creation_text(spec) for spec in sorted(plan.create)]
        if wrong:
            return Step("topics", False, f"the target refuses: {some_of(wrong)}")
        own = await when_available(
            lambda: own_topic_problems(self._config, self.transfer.target, target_counts)
        )
        if own.refused:
            return Step("topics", False, f"'bridge run' ends: {some_of(own.refused)}")
        # A new `BridgeRun`, so that topics are judged as at the first start of a bridge.
        if names := await when_available(
            lambda: filled_topics(
                self._config, self.transfer.target, counts, target_counts, BridgeRun()
            )
        ):
            return Step("topics", False, filled_text(self._config, names))
        if (mismatch := self._config.topics.mismatch(counts)) is not None:
            return Step("topics", False, mismatch)
        if missing:
            verb = "doesn't" if len(missing) == 1 else "don't"
            text = (
                f"{len(missing)} of {len(pairs)} {verb} exist at the target: 'bridge run' creates "
                f"{some_of(created)}"
            )
        else:
            partitions = counted(sum(counts[t] for t in pairs), "partition")
            text = f"{counted(len(pairs), 'topic')}, {partitions}"
        text = ". But ".join([text, *own.logged])
        return Step("topics", not missing, text, is_missing=bool(missing))

    async def messages(self, *, scan: bool = False) -> Step:
        """Return whether the target accepts the messages: samples, or with `scan` all of them.

        Raises:
            KafkaError: a cluster doesn't respond, or a log can't be read.
        """
        async with source_admin(self._config) as admin:
            topics = await copied_topics(self._config, admin)
            logs = await admin.list_log_bounds(topics.partitions)
            source_configs = await source_topic_configs(self._config, admin)
        target = self.transfer.target
        target_counts = await when_available(target.partition_counts)
        names = [name for name in topics.names.values() if name in target_counts]
        configs = await when_available(lambda: target.topic_configs(names))
        plan = plan_topics(self._config, topics.counts, target_counts, source_configs, ())
        settings = {**configs, **{spec.name: spec.config for spec in plan.create}}
        # The step "topics" names the topics that the target neither has nor can create.
        limits = {
            topic: TargetLimits.of(settings[name])
            for topic, name in topics.names.items()
            if name in settings
        }
        logs = {tp: log for tp, log in logs.items() if tp.topic in limits}
        count, reasons, expired = 0, Counter[str](), Counter[str]()
        keeps = self._config.copy.timestamps == "keep"
        async with aclosing(_read(self._config, logs, scan)) as slices:
            async for tp, records in slices:
                count += len(records)
                now_ms = int(time.time() * 1000)
                for record in records:
                    _judge(record, limits[tp.topic], keeps, now_ms, reasons, expired)
        read = counted(count, "message") + (" read" if scan else " sampled; --scan reads all")
        if reasons:
            wrong = [f"{where} ({counted(number, 'message')})" for where, number in reasons.items()]
            return Step("messages", False, f"the target refuses {some_of(wrong)}; {read}")
        if expired:
            old = [f"{number} in {topic}" for topic, number in expired.items()]
            read += f"; older than retention.ms at the target, which deletes them: {some_of(old)}"
        return Step("messages", True, read)

    async def producers(self, quiet_s: float) -> Step:
        """Return whether no message was written to the source for `quiet_s` seconds.

        Raises:
            KafkaError: the source doesn't respond.
        """
        async with source_admin(self._config) as admin:
            tps = (await copied_topics(self._config, admin)).partitions
            partitions = await copied_partitions(self._config, admin, self.transfer.target)
            self._positions = {tp: partition.position for tp, partition in partitions.items()}
            before = await admin.list_log_bounds(tps, starts=False)
            await asyncio.sleep(quiet_s)
            after = await admin.list_log_bounds(tps, starts=False)
        written = Counter[str]()
        for tp, (_, end) in after.items():
            if (begin := before[tp].end) is not None and end is not None and end > begin:
                written[tp.topic] += end - begin
        if written:
            some = [f"{topic} (+{number})" for topic, number in written.most_common()]
            return Step("producers", False, f"still write to the source: {some_of(some)}")
        return Step("producers", True, f"nothing was written for {quiet_s:g} s")

    async def copy(self) -> Step:
        """Return whether the bridge has copied all messages.

        Raises:
            KafkaError: a cluster doesn't respond.
        """
        async with source_admin(self._config) as admin:
            partitions = await copied_partitions(self._config, admin, self.transfer.target)
        lags, is_advancing = Counter[str](), False
        for tp, partition in partitions.items():
            if (before := self._positions.get(tp)) is not None and partition.position is not None:
                is_advancing |= partition.position > before
            if partition.lag != 0:  # below 0: the source was truncated or made again
                lags[tp.topic] += partition.lag or 0
        if lags:
            some = [f"{topic} ({lag} behind)" for topic, lag in lags.most_common()]
            if all(partition.position is None for partition in partitions.values()):
                return Step("copy", False, f"nothing is copied yet: {some_of(some)}")
            text = "'bridge run' is copying" if is_advancing else "is 'bridge run' up?"
            text = f"not copied yet: {some_of(some)}; {text}"
            return Step("copy", False, text, is_advancing=is_advancing)
        text = f"{counted(len(partitions), 'partition')} {_be(len(partitions))} copied to the end"
        return Step("copy", True, text)

    async def verification(self) -> Step:
        """Return whether the last verification found both sides equal, and how much is newer.

        Raises:
            KafkaError: a cluster doesn't respond.
        """
        verification = last_verification(state_path(self._config.path))
        if verification is None:
            return Step("verification", False, "none yet: run 'bridge verify'")
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(verification.at))
        if not verification.is_equal:
            if wrong := verification.different:
                text = f"of {at}: {differences_text(wrong)}"
                return Step("verification", False, text, is_different=True)
            text = f"of {at}: not complete: run 'bridge verify'"
            return Step("verification", False, text)
        async with source_admin(self._config) as admin:
            partitions = await copied_partitions(self._config, admin, self.transfer.target)
        left = sum(
            max(0, partition.position - verification.ends.get(tp, partition.source.start or 0))
            for tp, partition in partitions.items()
            if partition.position is not None
        )
        text = f"of {at}: {equal_text(verification.count)}"
        if left:
            verb = "wasn't" if left == 1 else "weren't"
            text += f"; {counted(left, 'offset')} copied since {verb} compared"
        return Step("verification", True, text)

    async def consumers(self) -> Step:
        """Return whether the groups were found, and have no member that hinders the cut-over.

        Raises:
            KafkaError: a cluster doesn't respond.
        """
        async with source_admin(self._config) as admin:
            if text := await unmatched_groups(self._config, admin, self._file_offsets):
                return Step("consumers", False, text, is_wrong=True)
            offsets = await source_offsets(self._config, admin, self._file_offsets)
            ours, unreadable = await source_members(self._config, admin, sorted(offsets))
        if unreadable:
            text = some_of(unreadable, separator=". ")
            return Step("consumers", False, f"members can't be read: {text}")
        theirs = await when_available(lambda: self.transfer.groups.members(sorted(offsets)))
        live = [f"{group} at the source ({', '.join(some)})" for group, some in ours.items()]
        at_target = {
            group: f"{group} at the target ({', '.join(some)})"
            for group, some in theirs.items()
            if some
        }
        moves = await self.transfer.plan() if at_target else []
        # Members at the target hinder the cut-over only if their group isn't carried over yet.
        waiting = {move.group for move in moves if not move.has_gone_on}
        live += [text for group, text in at_target.items() if group in waiting]
        if live:
            return Step("consumers", False, f"stop the members of {some_of(live)}")
        text = counted(len(offsets), "group")
        if not at_target:
            return Step("consumers", True, f"{text}, without members")
        reading = f"those that read on: {some_of([*at_target.values()])}"
        return Step(
            "consumers", True, f"{text}, without members at the source; {reading}", is_carried=True
        )

    async def groups(self) -> Step:
        """Return whether the offsets of all groups can be carried over.

        Raises:
            KafkaError: a cluster doesn't respond.
        """
        moves, cluster = await self.transfer.look()
        left_out = cluster.left_out_text()
        notes = filter(None, [left_out, cluster.uncommitted_text()])
        note = "".join(f". {text[0].upper()}{text[1:]}" for text in notes)
        wrong = [
            move for move in moves if move.outcome not in ("move", "same") and not move.has_gone_on
        ]
        if wrong:
            text = _wrong_text(wrong)
            if any(move.outcome == "behind" for move in moves):
                text += (
                    ". Groups that are behind have gone on at the target. If that was since a "
                    "cut-over, nothing is to be done for them. Else 'bridge groups --execute' "
                    "leaves these where they are at the target, and commits the others; "
                    "'bridge groups --execute --rewind' moves them back to where they are at the "
                    "source"
                )
            return Step("groups", False, text + note, leaves_out=bool(left_out))
        if self._config.groups.include and not moves:
            text = "no group of [groups] has committed offsets in the topics of the bridge"
            return Step("groups", False, text + note, leaves_out=bool(left_out))
        to_commit = sum(move.outcome == "move" for move in moves)
        there = len(moves) - to_commit
        text = f"{counted(to_commit, 'offset')} to commit, {there} {_be(there)} at the target{note}"
        is_carried = bool(moves) and not to_commit
        return Step("groups", True, text, is_carried=is_carried, leaves_out=bool(left_out))


def _wrong_text(moves: Sequence[GroupMove]) -> str:
    """Return which offsets can't be carried over, and why; name a cause common to all once."""
    causes = {
        (move.outcome, move.reason.replace(f"{move.copy[0]}/{move.copy[1]} ", "the partition "))
        for move in moves
    }
    if len(moves) == 1 or len(causes) > 1:
        texts = [f"{move.name}: {move.outcome}: {move.reason}" for move in moves]
        return some_of(texts, separator=". ")
    [(outcome, reason)] = causes
    groups = counted(len({move.group for move in moves}), "group")
    return f"{len(moves)} offsets of {groups}, such as {moves[0].name}: {outcome}: {reason}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def differences_text(wrong: Sequence[PartitionVerdict]) -> str:
    """Return how both sides differ, and what to do about messages of another producer.

    Args:
        wrong: partitions whose sides aren't equal.
    """
    texts: list[str] = []
    if some := [partition_name(verdict) for verdict in wrong if not verdict.is_of_another]:
        texts.append(f"different: {', '.join(some)}. See 'bridge verify'")
    if others := [
        f"{verdict.target_topic}/{verdict.partition} "
        f"from offset {verdict.difference.target_offset} on"
        for verdict in wrong
        if verdict.is_of_another and verdict.difference is not None
    ]:
        texts.append(
            f"the target has messages of another producer, behind the bridge's: "
            f"{', '.join(others)}. If they belong there, leave the verification out with "
            "--no-verify"
        )
    return ". ".join(texts)


def _creation_text(spec: TopicSpec) -> str:
    """Return the topic with its partitions, replicas and settings."""
    texts = [counted(spec.partitions, "partition")]
    if spec.replication_factor < 0:
        texts.append("replication of the target's default")
    else:
        texts.append(f"replication {spec.replication_factor}")
    texts += [f"{name}={value}" for name, value in sorted(spec.config.items())]
    return f"{spec.name} ({', '.join(texts)})"


async def _read(
    config: BridgeConfig, logs: Mapping[TopicPartition, LogBounds], scan: bool
) -> AsyncGenerator[tuple[TopicPartition, list[ConsumerRecord[bytes, bytes]]], None]:
    """Yield the messages at both ends of the source's logs, or all of them with `scan`."""
    async with source_router(config) as router:
        reader = RangeRecords(router)
        try:
            for tp, (start, end) in logs.items():
                if start is None or end is None:
                    continue
                ranges = [(start, end)]
                if not scan and end - start > 2 * _SAMPLE:
                    ranges = [(start, start + _SAMPLE), (end - _SAMPLE, end)]
                for first, last in ranges:
                    async with aclosing(reader.read(tp, first, last)) as slices:
                        async for records in slices:
                            yield tp, records
        finally:
            await reader.close()


def _judge(
    record: ConsumerRecord[bytes, bytes],
    limits: TargetLimits,
    keeps: bool,
    now_ms: int,
    reasons: Counter[str],
    expired: Counter[str],
) -> None:
    stamp = record.timestamp if keeps else None
    if (why := refusal(limits, record.key, record.value, stamp, now_ms)) is not None:
        where = partition_name(record)
        # One text per partition: the text of its first refused record, with a count.
        if not any(reason.startswith(f"{where} ") for reason in reasons):
            reasons[f"{where} from offset {record.offset} on: {why}"] += 1
        else:
            reasons[next(reason for reason in reasons if reason.startswith(f"{where} "))] += 1
    elif is_expired(limits, stamp, now_ms):
        expired[record.topic] += 1
