"""The orders of docs/guides/migrating.md, sent and read with confluent-kafka."""

from confluent_kafka import Consumer, KafkaException, Producer


def send(servers, values):
    reports = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        producer.produce("orders", value, on_delivery=lambda *report: reports.append(report))
        producer.poll(0)
    producer.flush(10)
    for error, _ in reports:
        if error is not None:
            raise KafkaException(error)
    return [(message.partition(), message.offset()) for _, message in reports]


def read(servers, count):
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "billing",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    found = []
    while len(found) < count:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found
