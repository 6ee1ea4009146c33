"""OpenTelemetry: spans and metrics of producers and consumers, by its messaging conventions.

    from aiokafka08.opentelemetry import instrument
    instrument()      # after the SDK is set up; `uninstrument()` ends it

The extra `otel` installs opentelemetry-api only. Nothing is recorded without an SDK.

Invariants: importing this module changes nothing. After `uninstrument()` the methods are the
original function objects. No module outside of this package imports opentelemetry. Spans have
neither keys nor values of messages.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "aiokafka08.opentelemetry needs opentelemetry-api. "
        "Install the extra: pip install 'aiokafka08[otel]'",
        name=error.name,
    ) from None

from aiokafka08 import __version__
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import IllegalStateError
from aiokafka08.opentelemetry.context import message_context
from aiokafka08.opentelemetry.names import (
    CONSUMED,
    DURATION,
    OLD_ATTRIBUTES,
    OLD_METRICS,
    OPT_IN_VARIABLE,
    SCHEMA_URL,
    SENT,
)
from aiokafka08.opentelemetry.receiving import (
    wrap_commit,
    wrap_getmany,
    wrap_getmany_arrow,
    wrap_getone,
)
from aiokafka08.opentelemetry.recorder import MessagingRecorder
from aiokafka08.opentelemetry.sending import (
    wrap_append,
    wrap_create_batch,
    wrap_send,
    wrap_send_arrow,
    wrap_send_batch,
    wrap_send_many,
)
from aiokafka08.producer import AIOKafkaProducer, BatchBuilder

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = [
    "CONSUMED",
    "DURATION",
    "OLD_ATTRIBUTES",
    "OLD_METRICS",
    "OPT_IN_VARIABLE",
    "SCHEMA_URL",
    "SENT",
    "instrument",
    "message_context",
    "uninstrument",
]


def instrument(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Report all producers and consumers, until `uninstrument()`. A second call does nothing.

    Args:
        tracer_provider: makes the tracer; None for the global one (default None).
        meter_provider: makes the meter; None for the global one (default None).
    """
    if _replaced:
        return
    opt_in = os.environ.get(OPT_IN_VARIABLE, "")
    recorder = MessagingRecorder(
        trace.get_tracer("aiokafka08", __version__, tracer_provider, SCHEMA_URL),
        metrics.get_meter("aiokafka08", __version__, meter_provider, SCHEMA_URL),
        with_old_names="messaging/dup" in map(str.strip, opt_in.split(",")),
    )
    for cls, name, wrap in _WRAPPERS:
        original = vars(cls)[name]
        # Each wrapper calls the original, and reports the call as one span and as metrics.
        # `send_and_wait()` and `async for` call the replaced `send` and `getone`.
        ours = functools.wraps(original)(wrap(recorder, original))
        _replaced[cls, name] = original, ours
        setattr(cls, name, ours)


def uninstrument() -> None:
    """Put the original methods back. Does nothing without `instrument()`.

    Calls that are under way, and messages that aren't acknowledged yet, are still reported.

    Raises:
        IllegalStateError: another program has wrapped a method after `instrument()`; undo that
            first.
    """
    for (cls, name), (_, ours) in _replaced.items():
        if vars(cls)[name] is not ours:
            raise IllegalStateError(
                f"{cls.__name__}.{name} was wrapped again after instrument(): undo that first"
            )
    for (cls, name), (original, _) in _replaced.items():
        setattr(cls, name, original)
    _replaced.clear()


_Wrapper = Callable[[MessagingRecorder, Any], Any]

_WRAPPERS: Final[Sequence[tuple[type, str, _Wrapper]]] = (
    (AIOKafkaProducer, "send", wrap_send),
    (AIOKafkaProducer, "send_many", wrap_send_many),
    (AIOKafkaProducer, "send_arrow", wrap_send_arrow),
    (AIOKafkaProducer, "send_batch", wrap_send_batch),
    (AIOKafkaProducer, "create_batch", wrap_create_batch),
    (BatchBuilder, "append", wrap_append),
    (AIOKafkaConsumer, "getone", wrap_getone),
    (AIOKafkaConsumer, "getmany", wrap_getmany),
    (AIOKafkaConsumer, "getmany_arrow", wrap_getmany_arrow),
    (AIOKafkaConsumer, "commit", wrap_commit),
)

# The replaced methods: the original and the wrapper
_replaced: dict[tuple[type, str], tuple[Any, Any]] = {}
