"""`PortTable`: which listener belongs to which broker, for as long as the gateway is used.

Clients remember addresses, so a broker keeps its listener's port when others come or go, and after
a restart of the gateway if the table has a file.

The table gives each broker an index. A listener's port for a broker is the index plus the
listener's first port.

Invariants: an index is never given to another broker. Otherwise a client that remembers the address
of a broker that has gone would send to the wrong one, and with acks=0 it would never learn that.
The file is replaced as a whole, and written only by the gateway that holds its lock.
"""

from __future__ import annotations

import itertools
import json
from asyncio import Future
from collections.abc import Container, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Final

from aiokafka08._core.state_file import lock_file, replace_file
from aiokafka08._tools.gateway.options import HIGHEST_PORT, MAX_BROKERS
from aiokafka08.errors import IllegalStateError, KafkaConfigurationError

ANSWER_S: Final = 15.0
"""How long another process may take to find an index."""

_KEY: Final = "listeners"
_FIRST: Final = "first_ports"


class PortTable:
    """See the module.

    Args:
        path: the file; None: the table is kept in memory only.
        taken: indices that no new broker gets, since their ports are used for something else.
        room: indices must be below this number, because the ports after that belong to another
            listener.
        first_ports: the ports of index 0, by the names of listeners.

    Attributes:
        is_kept: whether it has a file.

    Raises:
        KafkaConfigurationError: the file can't be read, isn't such a table, or is one in which the
            ports belong to other brokers.
    """

    def __init__(
        self,
        path: Path | None = None,
        taken: Container[int] = (),
        room: int = HIGHEST_PORT,
        first_ports: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._path = path
        self._taken = taken
        self._room = room
        self.is_kept = path is not None
        self._indices, known = _read(path) if path is not None and path.exists() else ({}, {})
        for name, port in known.items():
            moved = first_ports.get(name, port) - port
            if 0 < abs(moved) <= 1 + max(self._indices.values(), default=-1):
                text = f"{path}: the first broker's port was {port}{name and f' at {name}'}, and "
                text += f"would be {port + moved}: clients would reach other brokers. Keep it by "
                text += "listen (peers take the port before), or remove the file"
                raise KafkaConfigurationError(text)
        self._first_ports = {**known, **first_ports}
        self._is_written = self._first_ports == known

    @property
    def indices(self) -> Mapping[int, int]:
        """The indices, by broker."""
        return self._indices

    def lock(self) -> AbstractContextManager[object]:
        """Keep other gateways from the file until the end of the context.

        The lock is on a file beside the table, since the table itself is replaced when it changes.
        That file is never removed.

        Raises:
            KafkaConfigurationError: another gateway has the file, or the lock can't be written.
        """
        if self._path is None:
            return nullcontext()
        path = self._path.with_name(f"{self._path.name}.lock")
        try:
            return lock_file(path)
        except BlockingIOError:
            text = f"{self._path}: another gateway uses it, which has locked {path.name}; "
            raise KafkaConfigurationError(f"{text}expected a file for each gateway") from None
        except OSError as error:
            raise _not_written(path, error) from error

    def why_unusable(self) -> str | None:
        """Return why a gateway couldn't lock and write the file; None if it could.

        The check leaves no file behind, not even that of the lock.
        """
        if self._path is None:
            return None
        try:
            TemporaryFile(dir=self._path.parent).close()  # the file is replaced in its folder
            has_lock = self._path.with_name(f"{self._path.name}.lock").exists()
            with self.lock() if has_lock else nullcontext():
                return None
        except OSError as error:
            return _not_written(self._path, error).text
        except KafkaConfigurationError as error:
            return error.text

    def learn(self, node_ids: Iterable[int]) -> Future[None] | None:
        """Find the indices of new brokers for `add`, if that needs another process.

        The future is done when they are found, or after `ANSWER_S`. None means that the caller
        needn't wait.
        """
        return None

    def add(self, node_ids: Iterable[int]) -> None:
        """Give each new broker the next index, in the order of their ids.

        Raises:
            IllegalStateError: these are more brokers than a table, or its range of ports, can have.
            KafkaConfigurationError: the file can't be written.
        """
        indices = self.with_new(node_ids)
        if indices == self._indices and self._is_written:
            return
        if self._path is not None:
            table = {_KEY: indices, _FIRST: self._first_ports}
            try:
                replace_file(self._path, json.dumps(table) + "\n")
            except OSError as error:
                raise _not_written(self._path, error) from error
        self._indices, self._is_written = indices, True

    def with_new(self, node_ids: Iterable[int]) -> dict[int, int]:
        """Return the indices that `add` would give, and all others, by broker.

        Raises:
            IllegalStateError: see `add`.
        """
        new = sorted(set(node_ids) - self._indices.keys())
        if (count := len(self._indices) + len(new)) > MAX_BROKERS:
            text = f"the target names {count} different brokers; expected at most {MAX_BROKERS}"
            raise IllegalStateError(text)
        first = 1 + max(self._indices.values(), default=-1)
        free = (index for index in itertools.count(first) if index not in self._taken)
        indices = self._indices | dict(zip(new, free, strict=False))
        if max(indices.values(), default=-1) >= self._room:
            text = f"the listeners' first ports leave {self._room} ports for {count} brokers, "
            text += "those that have gone included; expected ports that are further apart"
            raise IllegalStateError(text)
        return indices


def _read(path: Path) -> tuple[dict[int, int], dict[str, int]]:
    try:
        table = json.loads(path.read_bytes())
        indices = {int(node): index for node, index in table[_KEY].items()}
        first_ports = {name: int(port) for name, port in table.get(_FIRST, {}).items()}
        if any(type(one) is not int or one not in range(HIGHEST_PORT) for one in indices.values()):
            raise ValueError("an index isn't a number from 0 to 65534")
        if len(set(indices.values())) < len(indices):
            raise ValueError("two brokers have the same index")
    except OSError as error:
        raise KafkaConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f'{path}: not a table of listeners ({error!r}); expected {{"{_KEY}": {{"NODE ID": '
        text += "INDEX}}. Restore it, or remove it to number the brokers anew"
        raise KafkaConfigurationError(text) from None
    return indices, first_ports


def _not_written(path: Path, error: OSError) -> KafkaConfigurationError:
    return KafkaConfigurationError(f"{path}: can't be written: {error.strerror}")
