"""Lines arrive though a leader dies, with ingest.py of docs/guides/ingestion.md."""

import asyncio
import os
import signal

import pytest
from ingest import serve


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(brokers=3, topics={"access": 1})
async def test_lines_are_in_the_log_when_the_daemon_ends(kafka_cluster):
    started = asyncio.get_running_loop().create_future()
    daemon = asyncio.create_task(
        serve(kafka_cluster.bootstrap_servers, "access", 0, started.set_result)
    )
    port = (await started).sockets[0].getsockname()[1]
    kafka_cluster.kill(0)  # the leader: the daemon goes on with the next one
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"one\ntwo\nthree")
    writer.write_eof()
    assert await reader.read() == b""  # the daemon has sent all lines, and closed the connection
    writer.close()
    os.kill(os.getpid(), signal.SIGTERM)
    ingest = await daemon
    assert (ingest.acknowledged, ingest.failed) == (3, 0)
    assert [one.value for one in kafka_cluster.log("access", 0)] == [b"one", b"two", b"three"]
