"""Decide once which implementations run: the compiled twins or their pure Python twins.

This module is the only place that reads AIOKAFKA08_IMPL and that handles the failed import of an
extension module (a compiled twin), `protocol._message_set_c` or `producer._producer_c`.

Invariant: with AIOKAFKA08_IMPL=python no extension module is imported; with =c a missing one raises
ImportError; without it a missing one is replaced by its pure twin. The compiled producer never runs
on the pure message set, since it writes into the compiled builder's buffer. Each pure twin that
runs has a reason, which clients log at their start.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Final

_VARIABLE: Final = "AIOKAFKA08_IMPL"
_MESSAGE_SET: Final = "aiokafka08.protocol._message_set_c"
_PRODUCER: Final = "aiokafka08.producer._producer_c"

CONSUMER_TWINS: Final = {"message_set": _MESSAGE_SET}
"""The extension modules that a consumer uses, by the name of the part that each speeds up."""

PRODUCER_TWINS: Final = {**CONSUMER_TWINS, "producer": _PRODUCER}
"""The extension modules that a producer uses."""


def _demanded() -> str | None:
    value = os.environ.get(_VARIABLE) or None
    if value not in (None, "c", "python"):
        raise ImportError(
            f"{_VARIABLE}={value!r}: expected 'c' or 'python'. Correct or unset the variable"
        )
    return value


_demand: Final = _demanded()
# Why an extension module isn't used, by its name
_pure_reasons: Final[dict[str, str]] = {}


def _source_tree() -> str | None:
    """Return the folder of the sources that this package was imported from, if it is a clone."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return folder if os.path.isfile(os.path.join(folder, "pyproject.toml")) else None


def _load(name: str, slot_classes: tuple[type, ...] = ()) -> ModuleType | None:
    if _demand == "python":
        _pure_reasons[name] = f"{_VARIABLE}=python"
        return None
    try:
        module = importlib.import_module(name)
        if slot_classes:
            module.bind(*slot_classes)
    except ImportError as error:
        reason = f"{name} can't be imported ({error})"
        tree = _source_tree() if isinstance(error, ModuleNotFoundError) else None
        if tree is not None:
            reason += f"; aiokafka08 was imported from the source tree {tree}, not compiled there"
        if _demand is None:
            _pure_reasons[name] = reason
            return None
        advice = (
            f"Unset {_VARIABLE}, or, where there is a C compiler, install the package again in a "
            "clone: pip install --force-reinstall --no-deps --no-cache-dir ."
            if tree is None
            else f"Run Python in another folder, unset {_VARIABLE}, or, where there is a C "
            "compiler, compile it in that folder: pip install -e ."
        )
        raise ImportError(f"{_VARIABLE}=c: {reason}. {advice}") from error
    return module


compiled_message_set: Final = _load(_MESSAGE_SET)
"""The compiled twin of the message set; None: use the pure one."""

IMPLEMENTATION: Final = "python" if compiled_message_set is None else "c"
"""Which twin builds and decodes message sets: "c" or "python"."""


def load_compiled_producer(*slot_classes: type) -> ModuleType | None:
    """Import the compiled twin of the producer's fast path; None: use the pure one.

    Args:
        slot_classes: the classes whose slots the compiled twin reads and writes. They are passed to
            its function `bind()`, which raises ImportError if a class lacks a slot.

    Raises:
        ImportError: AIOKAFKA08_IMPL=c, and the compiled twin can't be imported.
    """
    if compiled_message_set is None:
        _pure_reasons[_PRODUCER] = _pure_reasons[_MESSAGE_SET]
        return None
    return _load(_PRODUCER, slot_classes)


def are_compiled(modules: Mapping[str, str]) -> bool:
    """Return whether all these extension modules are used."""
    return _pure_reasons.keys().isdisjoint(modules.values())


def describe(modules: Mapping[str, str]) -> str:
    """Return "c" or "python"; or, if the parts differ, "message_set:c,producer:python"."""
    twins = {part: "python" if module in _pure_reasons else "c" for part, module in modules.items()}
    if len(set(twins.values())) == 1:
        return next(iter(twins.values()))
    return ",".join(f"{part}:{twin}" for part, twin in twins.items())


def explain_pure(modules: Mapping[str, str]) -> str:
    """Return which parts run in pure Python, and why, as a sentence; "" if all are compiled."""
    pure = {
        part: _pure_reasons[module] for part, module in modules.items() if module in _pure_reasons
    }
    if not pure:
        return ""
    parts, reasons = " and ".join(pure).replace("_", " "), "; ".join(dict.fromkeys(pure.values()))
    return f"running {parts} in pure Python, which is slower than the compiled twin: {reasons}"
