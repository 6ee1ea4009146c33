"""The orders of docs/guides/migrating.md, sent and read with kafka-python."""

from kafka import KafkaConsumer, KafkaProducer


def send(servers, values):
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=False)
    futures = [producer.send("orders", value) for value in values]
    places = [future.get(timeout=10) for future in futures]
    producer.close()
    return [(place.partition, place.offset) for place in places]


def read(servers, count):
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    found = []
    while len(found) < count:
        for messages in consumer.poll(timeout_ms=500).values():
            found += [message.value for message in messages]
        consumer.commit()
    consumer.close()
    return found
