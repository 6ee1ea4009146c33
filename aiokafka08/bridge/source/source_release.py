"""`left_out`: the parts of a source of 0.11 or later that a copy leaves out.

Invariant: the release alone decides. Brokers from 0.11 on convert their records for a reader of
0.8's protocol: they drop the headers, and return the records of aborted transactions like all
others, so a reader can't see either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.source.source_clients import source_admin
from aiokafka08.errors import KafkaError

_FIRST_WITH_HEADERS: Final = (0, 11)


async def left_out(config: BridgeConfig) -> str | None:
    """Return the parts of the source that the copy leaves out, as a text; None below 0.11.

    Raises:
        KafkaError: no broker responds.
    """
    async with source_admin(config) as admin:
        return await left_out_by(admin)


async def left_out_by(admin: AIOKafkaAdminClient) -> str | None:
    """Return the text of `left_out`, by a started client of the source.

    Raises:
        KafkaError: no broker responds.
    """
    await admin.describe_cluster()
    releases = known_releases((await admin.ping_brokers()).values())
    # One newer broker, as in an upgrade, converts its records already.
    newest = max(releases, key=release_numbers, default="0.8")
    if release_numbers(newest) < _FIRST_WITH_HEADERS:
        return None
    return (
        f"the source is of {newest}, and is read by the protocol of 0.8: message headers are left "
        "out, and messages of aborted transactions are copied like others. For topics that have "
        "headers or transactions use MirrorMaker 2, with isolation.level=read_committed"
    )


def known_releases(versions: Iterable[BrokerVersion | KafkaError]) -> list[str]:
    """Return the releases of the brokers that respond."""
    return [version.release for version in versions if isinstance(version, BrokerVersion)]


def release_numbers(release: str) -> tuple[int, ...]:
    """Return the numbers of a release; of "3.5 or 3.6" the numbers of the first."""
    return tuple(map(int, release.split()[0].split(".")))
