"""Compare, print and freeze dataclasses by code that they share.

`dataclass` generates `__eq__` and `__repr__` anew for each class, a signature as the docstring of
a class that has none, and `__setattr__` and `__delattr__` of a frozen one. For the structs of
`protocol.requests` and the events of `telemetry` that took a quarter of the time of the import, so
they derive from `ByFields` and `FrozenFields`.

Invariant: a dataclass with `eq=False, repr=False` that derives from `ByFields` compares and prints
its positional fields as it would without these two options, and hashes them as if it were frozen.
Keyword-only fields, as the `client_id` of an event, are neither compared nor printed.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError


class ByFields:
    """The base class of dataclasses with `eq=False, repr=False`; see the module."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()  # dataclass sets it to the names of the fields

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # that of Generic
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__

    def field_values(self) -> tuple[object, ...]:
        """Return the values of all positional fields, in order."""
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByFields) or type(other) is not type(self):
            return NotImplemented
        return self.field_values() == other.field_values()

    def __hash__(self) -> int:
        return hash((type(self), self.field_values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({fields})"


class FrozenFields(ByFields):
    """The base class of such dataclasses whose fields are set once, as with `frozen=True`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")
