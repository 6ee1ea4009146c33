"""Entries of a broker's log that say nothing of the clients under test are left out."""

from __future__ import annotations

from tests.brokers.log_entries import entries


def test_errors_of_gone_clients_and_topics_are_left_out() -> None:
    gone = (
        "[2026-11-22 20:58:16,678] ERROR Closing socket for /127.0.0.1 because of error\n"
        "java.io.IOException: Broken pipe\n\tat java.base/sun.nio.ch\n"
    )
    unknown = (
        "[2026-11-22 20:58:17,001] ERROR Closing socket for /127.0.0.1 because of error\n"
        "kafka.common.KafkaException: Wrong request type 9\n\tat kafka.api\n"
    )
    deleted = (
        "[2026-11-27 04:58:02,040] ERROR Error when freeing index buffer (kafka.log.OffsetIndex)\n"
        "java.lang.IllegalAccessException: class kafka.log.OffsetIndex\n\tat java.base/jdk\n"
    )
    assert entries(f"{gone}{unknown}{deleted}{gone}") == [unknown]
