"""What the process of a bridge does beside its sessions."""

from __future__ import annotations

import asyncio
import gc

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.status import CopyStatus
from tests.waiting import until

NOWHERE = parse_config(
    'name="x"\n[source]\nbootstrap="127.0.0.1:1"\n[target]\nbootstrap="127.0.0.1:1"\n'
    '[topics]\ninclude=["t"]\n'
)


async def test_collections_leave_out_what_is_older_than_the_copy() -> None:
    """A full collection of all objects holds the event loop for 15 to 25 ms of CPU time."""
    gc.unfreeze()  # what other tests have frozen
    older, status = [object()], CopyStatus()
    running = asyncio.create_task(run_bridge(NOWHERE, status))
    try:
        await until(lambda: status.sessions, "a session begins", 30)
        assert all(one is not older for one in gc.get_objects())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert any(one is older for one in gc.get_objects())
