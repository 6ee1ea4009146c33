"""Write the contexts of spans into headers of messages, and read them from there. Pure.

Invariants: headers that have a context keep it. Headers that aren't pairs of a name and a value are
neither changed nor an error here, since the producer itself raises the error. `created_contexts`
can't yield to the event loop, since a call of the consumer that is cancelled there would lose
messages. So it reads a bounded number of headers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from aiokafka08.embedded_headers import MAX_HEADERS
from aiokafka08.structs import ConsumerRecord

MAX_LINKS: Final = 128
"""How many links a span has at most; the SDK drops more than these."""

# How many headers are read at most (equal ones in a row count once); this takes 2 ms
_MAX_READ: Final = 256


def message_context(record: ConsumerRecord[Any, Any]) -> Context:
    """Return the context that the producer put into a message; an empty one if there is none.

    For a span of the work on the message: `tracer.start_as_current_span("…", context=…)`.
    """
    return propagate.extract(_carrier(record.headers), Context())


def creation_context(headers: Any) -> SpanContext | None:
    """Return the context of the span that created a message; None if its headers have none."""
    if not headers or not isinstance(headers, tuple | list):
        return None
    extracted_context = propagate.extract(_carrier(headers), Context())
    context = trace.get_current_span(extracted_context).get_span_context()
    return context if context.is_valid else None


def context_headers(span: trace.Span) -> list[tuple[str, bytes]]:
    """Return the headers with the span's context; none if that isn't valid, as without an SDK."""
    carrier: dict[str, str] = {}
    if span.get_span_context().is_valid:
        propagate.inject(carrier, trace.set_span_in_context(span))
    return [(name, text.encode()) for name, text in carrier.items()]


def with_context(headers: Any, ours: list[tuple[str, bytes]]) -> Any:
    """Return a message's headers and ours; only the message's if both can't be sent."""
    if headers is None:
        return ours
    if not isinstance(headers, tuple | list) or len(headers) + len(ours) > MAX_HEADERS:
        # An envelope has no room for ours, or the headers are wrong and the producer raises an
        # error.
        return headers
    return [*headers, *ours]


def created_contexts(all_headers: Iterable[Any]) -> Collection[SpanContext]:
    """Return the distinct contexts in the headers of received messages, the first ones only."""
    contexts: list[SpanContext | None] = []
    last: Any = ()
    for headers in all_headers:
        if not headers or headers == last:  # as in messages of one `send_many()`
            continue
        last = headers
        contexts.append(creation_context(headers))
        if len(contexts) == _MAX_READ:
            # No message may be lost by a cancelled call, so the call doesn't yield here.
            break
    return distinct(contexts)


def distinct(contexts: Iterable[SpanContext | None]) -> Collection[SpanContext]:
    """Return each context once, in order, up to `MAX_LINKS`."""
    by_id = {
        (context.trace_id, context.span_id): context for context in contexts if context is not None
    }
    return list(by_id.values())[:MAX_LINKS]


def _carrier(headers: Iterable[Any]) -> dict[str, str]:
    """Return the headers as propagators read them; those that aren't pairs are left out."""
    return {
        header[0]: header[1].decode(errors="replace")
        for header in headers
        if isinstance(header, tuple | list)
        and len(header) == 2
        and isinstance(header[0], str)
        and isinstance(header[1], bytes)
    }
