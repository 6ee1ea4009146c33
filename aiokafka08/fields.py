"""Dataclasses whose methods are shared, or generated when a program uses them first.

`dataclass` compiles the methods of a class, which takes 0.1 to 0.3 ms, and with `slots=True` it
creates the class twice. For the structs of `protocol.requests`, the events of `telemetry` and the
other values of a client that took a third of the time of the import. A program uses few of them.

A class that derives from `Slotted`, `ByFields` or `FrozenFields` is a dataclass with slots, without
a decorator; another package's subclass of it is one only with the decorator. The latter two share
`__eq__`, `__hash__` and `__repr__`. The first call of a class, or of a function of `dataclasses`
with it, lets `dataclass` generate its `__init__`, unless the class defines one.

Invariant: a class that derives from `ByFields` compares and prints its positional fields as if it
were decorated with `@dataclass(slots=True)`, and hashes them as with `frozen=True`. Fields that
`__init__` doesn't take by position, as the `client_id` of an event, are neither compared nor
printed.
"""

from __future__ import annotations

from dataclasses import Field, FrozenInstanceError, dataclass, field, replace
from typing import Any, ClassVar, dataclass_transform

_GENERATED = ("__init__", "__dataclass_fields__", "__dataclass_params__")


class _GeneratedWhenUsed:
    """Stands for one attribute of a class, until a program reads it: see `_generate`."""

    def __set_name__(self, owner: _FieldsType, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        _generate(self._owner)
        value = vars(self._owner)[self._name]
        return value.__get__(instance, owner) if self._name == "__init__" else value


def _generate(cls: _FieldsType) -> None:
    """Set the attributes `_GENERATED` of a class to those of a dataclass with the same fields.

    `dataclass` can't do it with the class itself: it looks there for defaults, in place of which
    the class has slots.
    """
    namespace: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": "",  # without one, dataclass makes it from the signature
        "__annotations__": cls.annotations,
        **cls.defaults,
    }
    if hasattr(cls, "__post_init__"):
        namespace["__post_init__"] = None
    template = type(cls.__name__, (), namespace)
    frozen = issubclass(cls, FrozenFields)  # such an `__init__` doesn't call `__setattr__`
    generated = vars(dataclass(eq=False, repr=False, frozen=frozen)(template))
    for name in _GENERATED:
        if isinstance(vars(cls)[name], _GeneratedWhenUsed):
            setattr(cls, name, generated[name])


class _FieldsType(type):
    """The type of these classes: it makes slots of the annotated fields.

    Attributes:
        annotations: The annotations of all fields in order, inherited ones first.
        defaults: The defaults of those that have one, values or `dataclasses.field()`.
        compared: The positional fields without `compare=False`.
    """

    annotations: dict[str, str]
    defaults: dict[str, Any]
    compared: tuple[str, ...]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _FieldsType:
        if not _has_fields_of_its_own(namespace.get("__module__", ""), bases):
            return super().__new__(cls, name, bases, namespace, **options)
        own: dict[str, str] = {
            field_name: annotation
            for field_name, annotation in namespace.get("__annotations__", {}).items()
            if not annotation.startswith("ClassVar")
        }
        own_defaults = {one: namespace.pop(one) for one in own if one in namespace}
        annotations: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        for base in bases:
            if isinstance(base, _FieldsType):
                annotations |= base.annotations
                defaults |= base.defaults
        namespace["__slots__"] = tuple(one for one in own if one not in annotations)
        annotations |= own
        defaults |= own_defaults
        positional = [one for one in annotations if _is_positional(defaults.get(one))]
        namespace["__match_args__"] = tuple(positional)
        namespace.setdefault("__doc__", name)
        for generated in _GENERATED:
            namespace.setdefault(generated, _GeneratedWhenUsed())
        made = super().__new__(cls, name, bases, namespace, **options)
        made.annotations, made.defaults = annotations, defaults
        made.compared = tuple(one for one in positional if _is_compared(defaults.get(one)))
        return made


def _has_fields_of_its_own(module: str, bases: tuple[type, ...]) -> bool:
    """Return False for another package's subclass of a class with fields.

    It is like an undecorated subclass of a dataclass: its annotations mean nothing here.
    """
    parents = [base for base in bases if isinstance(base, _FieldsType) and base.annotations]
    return not parents or module.partition(".")[0] in {
        base.__module__.partition(".")[0] for base in parents
    }


def _is_positional(default: object) -> bool:
    return not isinstance(default, Field) or (default.init and default.kw_only is not True)


def _is_compared(default: object) -> bool:
    return not isinstance(default, Field) or default.compare


class _WithFields(metaclass=_FieldsType):
    """What all these classes share."""

    __match_args__: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __replace__(self, /, **changes: Any) -> Any:
        """Return a copy with other values: `copy.replace` calls it, from Python 3.13 on."""
        return replace(self, **changes)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class Slotted(_WithFields):
    """The base class of dataclasses with slots whose instances equal only themselves."""


class _Compared(_WithFields):
    """What `ByFields` and `FrozenFields` share."""

    def field_values(self) -> tuple[object, ...]:
        """Return the values of the fields that are compared, in order."""
        return tuple([getattr(self, name) for name in type(self).compared])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Compared) or type(other) is not type(self):
            return NotImplemented
        return self.field_values() == other.field_values()

    def __hash__(self) -> int:
        return hash((type(self), self.field_values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({fields})"


@dataclass_transform(field_specifiers=(field,))
class ByFields(_Compared):
    """The base class of dataclasses with slots that are compared by their fields."""


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class FrozenFields(_Compared):
    """The base class of such dataclasses whose fields are set once, as with `frozen=True`."""

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")
