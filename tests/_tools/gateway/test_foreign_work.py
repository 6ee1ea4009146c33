"""What a program of another client says of its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafka08.testing.history import Message, Operation, check
from tests._tools.gateway.foreign_work import Program, is_late_retry
from tests.support.waiting import until


async def test_errors_have_exit_code_and_exception(tmp_path: Path) -> None:
    program = Program(tmp_path / "member.out", "consume", "a-client", "1", "servers", "g", "t")
    try:
        await until(lambda: not program.running, timeout_s=60)
    finally:
        program.stop()
    with (tmp_path / "member.err").open("a") as errors:
        errors.write("a line of another thread\n" * 1000)
    head = program.errors().partition("the end of stderr:")[0]
    assert head.startswith("exit code 1\n")
    assert "in consume" in head
    assert "KeyError: 'a-client'\n" in head


def send(at: float, offset: int) -> Operation:
    """Return the send of a message, which takes a second."""
    sent = (Message("t/0", str(offset), offset),)
    return Operation(process="p", call="send", invoked=at, ended=at + 1, sent=sent)


@pytest.mark.parametrize(("retried_at", "is_explained"), [(0.5, True), (1.5, False)])
def test_order_is_librdkafkas_own_only_where_the_late_message_was_sent_again(
    retried_at: float, is_explained: bool
) -> None:
    report = Operation(
        process="p",
        call="retried",
        invoked=retried_at,
        ended=retried_at,
        partitions=("t/0",),
        facts={"messages": 9, "may_be_stored": True},
    )
    history = [send(0, 1), send(2, 0), report]
    (anomaly,) = [one for one in check(history) if one.name == "nonmonotonic-send"]
    assert is_late_retry(anomaly, history) == is_explained
