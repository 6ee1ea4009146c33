"""The results of `describe_consumer_groups`."""

from __future__ import annotations

import pytest

from tests.conformance.contract.aiokafka.libraries import Comparison, Library
from tests.support.names import unique_name

pytestmark = pytest.mark.real


async def test_group_is_described_as_tuples(compare: Comparison) -> None:
    """With two groups, aiokafka can't decode the response of this broker."""

    async def observe(library: Library) -> list[object]:
        topic, name = await library.create_topic(), unique_name("g")
        consumer = await library.consumer(topic, group_id=name, client_id="c")
        admin = await library.admin()
        [response] = await admin.describe_consumer_groups([name])
        [(error_code, group, state, protocol_type, protocol, members, *_)] = response.groups
        [(_, client_id, _, _, assignment)] = members
        decode = library.module("coordinator.protocol").ConsumerProtocolMemberAssignment.decode
        return [
            error_code,
            group == name,
            [state, protocol_type, protocol, client_id],
            set(decode(assignment).partitions()) == consumer.assignment(),
        ]

    assert await compare(observe) == [0, True, ["Stable", "consumer", "roundrobin", "c"], True]


async def test_description_as_object_has_keys(compare: Comparison) -> None:
    async def observe(library: Library) -> list[object]:
        topic, name = await library.create_topic(), unique_name("g")
        await library.consumer(topic, group_id=name)
        admin = await library.admin()
        [response] = await admin.describe_consumer_groups([name])
        [group] = response.to_object()["groups"]
        group.pop("authorized_operations", None)  # of the newer request that aiokafka sends
        [member] = group["members"]
        return [list(group), list(member)]

    assert await compare(observe)
