"""Put the reason of an error first, where Spark shows the traceback of its Python process.

Invariants:
- Only the package's own errors and their causes lose their inner frames, because their texts say
  what to do. The frames are logged to `aiokafka08.spark` at level DEBUG. Any other exception is
  left as it is.
- A traceback shows the class of an error of this package once.
"""

# Spark shows an error of a data source as the text of its traceback, before a hundred lines of
# Java. Some of its processes omit their own frames, and with them the cause of the error; others
# print all with the cause first, as Python does. So each error of this package is raised without
# its inner frames, from a copy of itself. The copy has the error's own cause, which is shown too.

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from aiokafka08.errors import KafkaError

_log: Final = logging.getLogger("aiokafka08.spark")


P = ParamSpec("P")
T = TypeVar("T")


def reason_first(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method that Spark calls: a Kafka error leaves it with its reason first."""

    # A context manager would add two frames: Spark shows each one before the reason.
    @wraps(call)
    def show_reason(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except KafkaError as error:
            raise error from drop_frames(error)

    return show_reason


def drop_frames(error: KafkaError) -> KafkaError:
    """Drop an error's frames, and return the cause to raise it from: its copy.

    The copy has the same class, text, attributes and cause. `__init__` isn't called, because it may
    need more arguments.
    """
    _log.debug("an error leaves the data source", exc_info=error)
    show_class_once(error)
    error.__traceback__ = None
    cause = error.__cause__
    # An error that this function has prepared before, such as that of a refused query, already has
    # its copy as its cause.
    if isinstance(cause, KafkaError) and type(cause) is type(error) and cause.args == error.args:
        return cause
    copied = type(error).__new__(type(error))
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = cause
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__
    return copied


def show_class_once(error: BaseException) -> None:
    """Leave the class names out of the texts of an error and its causes: tracebacks have them."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KafkaError):
            cause.names_class = False
        cause = cause.__cause__
