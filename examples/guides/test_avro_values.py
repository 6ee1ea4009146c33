"""Avro values and a registry with one schema, with avro_values.py of docs/guides/values.md."""

import http.server
import json
import threading

import pytest
from avro_values import AvroValues

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}


class Registry(http.server.BaseHTTPRequestHandler):
    """A registry with one schema, of the id 7."""

    def do_POST(self):  # /subjects/orders-value
        self.rfile.read(int(self.headers["Content-Length"]))
        self.respond({"id": 7})

    def do_GET(self):  # /schemas/ids/7
        self.respond({"schema": json.dumps(ORDER), "schemaType": "AVRO"})

    def respond(self, found):
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def registry():
    with http.server.HTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_an_order_comes_back_by_its_schema(kafka_cluster, registry):
    servers = kafka_cluster.bootstrap_servers
    to_avro = await AvroValues(registry).serializer("orders-value", ORDER)
    async with AIOKafkaProducer(bootstrap_servers=servers, value_serializer=to_avro) as producer:
        await producer.send_and_wait("orders", {"item": "tea"})
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        message = await consumer.getone()
    assert await AvroValues(registry).decode(message.value) == {"item": "tea"}
