"""The end of the demo: show what the command line prints about the cluster."""

from __future__ import annotations

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.cli.main import main
from aiokafka08.errors import KafkaConfigurationError
from examples.demo.run import DemoError, Run, on_loop

FINDINGS = 1
"""The exit code of `doctor` if the cluster isn't healthy: in the demo a broker was killed."""


def operate(run: Run) -> str | None:
    """Commit offsets of a group, and run commands of `aiokafka08`.

    Returns:
        The group; None on 0.8.0, which has no offsets of groups.

    Raises:
        DemoError: a command failed; its reason is on stderr.
        KafkaError: the offsets weren't committed.
    """
    group, committed = f"{run.topic}-reader", True
    _say(run, "What the command line shows about this cluster:")
    _show(run, "metadata", run.topic)
    try:
        on_loop(_commit(run, group))
    except KafkaConfigurationError:
        committed = False
        run.console.print("group lag skipped: on 0.8.0 the offsets of groups are in ZooKeeper")
    else:
        _say(
            run,
            f"The demo has committed offsets for group {group} as if it had read 90 % of each "
            "partition, so that there is a lag to show: the last 10 % are uncommitted on purpose.",
        )
        _show(run, "group", "lag", group)
    if run.killed is not None:
        _say(
            run,
            f"Broker {run.killed.node}, which the demo killed, stays down. So doctor must find the "
            "partitions that lack its replica, and end with exit code 1:",
        )
    _show(run, "doctor", also=FINDINGS)
    return group if committed else None


async def _commit(run: Run, group: str) -> None:
    """Let a group be a tenth of each partition behind."""
    async with AIOKafkaAdminClient(bootstrap_servers=run.bootstrap) as admin:
        [topic] = await admin.describe_topics([run.topic])
    partitions = [TopicPartition(run.topic, one["partition"]) for one in topic["partitions"]]
    async with AIOKafkaConsumer(
        bootstrap_servers=run.bootstrap, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        await consumer.commit({tp: end * 9 // 10 for tp, end in ends.items()})


def _say(run: Run, text: str) -> None:
    run.console.print(f"\n{text}")


def _show(run: Run, *words: str, also: int = 0) -> None:
    """Run a command, and show its command line first; `also` is an exit code besides 0."""
    arguments = [*words, "-b", run.bootstrap]
    run.console.print(f"\n$ aiokafka08 {' '.join(arguments)}", style="bold", soft_wrap=True)
    if main([*arguments, "--format", "table"]) not in (0, also):
        raise DemoError(f"aiokafka08 {' '.join(arguments)} failed")
