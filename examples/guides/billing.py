"""Workers that write orders into a ledger, in bundles, each of which is committed afterwards."""

import logging
import os

from aiokafka08 import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka08.errors import KafkaError

log = logging.getLogger("billing")


class Bundle(ConsumerRebalanceListener):
    """The orders that have been read, and aren't in the ledger yet."""

    def __init__(self):
        self.orders = []

    async def on_partitions_revoked(self, revoked):
        self.orders.clear()  # their next owner reads them again

    async def on_partitions_assigned(self, assigned):
        pass


async def bill_orders(bootstrap_servers, ledger):
    """Write orders into the ledger, ten at once, or fewer if no more come for 0.2 seconds."""
    bundle = Bundle()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        client_id=f"billing-{os.getpid()}",
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe(["orders"], listener=bundle)
    async with consumer:
        while True:
            records = await consumer.getmany(timeout_ms=200, max_records=10 - len(bundle.orders))
            bundle.orders += [record.value for some in records.values() for record in some]
            if bundle.orders and (not records or len(bundle.orders) >= 10):
                orders, bundle.orders = bundle.orders, []
                await ledger.write(orders)
                try:
                    await consumer.commit()
                except KafkaError:  # the next owner reads and bills these orders again
                    log.exception("orders are billed, but not committed")
