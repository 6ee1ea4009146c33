"""A program that OpenTelemetry's instrumentor of aiokafka traces; test_otel.py runs it.

    python -m aiokafka08.compat otel_service.py <servers> <skip_dep_check: 0 or 1>

It prints the spans as JSON: name, kind, trace, id and parent.
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SERVERS, SKIP = sys.argv[1:]
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
AIOKafkaInstrumentor().instrument(tracer_provider=provider, skip_dep_check=SKIP == "1")


async def main() -> None:
    """Send and read in the ways that the instrumentor wraps."""
    async with (
        AIOKafkaProducer(bootstrap_servers=SERVERS) as producer,
        AIOKafkaConsumer("t", bootstrap_servers=SERVERS, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send_and_wait("t", b"0")
        assert (await consumer.getone()).value == b"0"
        await (await producer.send("t", b"1", headers=[("own", b"x")]))
        async for record in consumer:
            assert [name for name, _ in record.headers] == ["own", "traceparent"]
            break
        await producer.send_and_wait("t", b"2")
        assert len(await consumer.getmany(timeout_ms=10000)) == 1
    print(
        json.dumps(
            [
                [
                    span.name,
                    span.kind.name,
                    span.context.trace_id,
                    span.context.span_id,
                    span.parent and span.parent.span_id,
                ]
                for span in exporter.get_finished_spans()
            ]
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
