"""Keep the verdicts of a verification in a file, to resume it and to show when it last ran.

Invariant: the file is replaced as a whole, so that a killed process leaves the last complete state.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka08._core.json_objects import json_object
from aiokafka08.bridge.verify.sequence_check import CheckProgress, Difference
from aiokafka08.bridge.verify.verification import OffsetPair, PartitionVerdict
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import TopicPartition

_VERSION: Final = 1
# How to read the fields that are lists in JSON.
_TUPLES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "difference": Difference._make,
    "first_pair": tuple,
    "last_pair": tuple,
    "first_map": OffsetPair._make,
    "last_map": OffsetPair._make,
}


class VerifyState:
    """The verdicts so far of one bridge; `timestamps`: whether timestamps are compared."""

    def __init__(self, path: Path, bridge: str, timestamps: bool) -> None:
        self._path, self._bridge, self._timestamps = path, bridge, timestamps
        self.verdicts: dict[TopicPartition, PartitionVerdict] = {}

    def load(self) -> None:
        """Read the file of an interrupted verification; without one, there is nothing to resume.

        Raises:
            IllegalArgumentError: the file is of another bridge, of other options, or damaged.
        """
        try:
            document = json_object(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise self._wrong(str(error)) from None
        wanted = {"version": _VERSION, "bridge": self._bridge, "timestamps": self._timestamps}
        header = {name: document.get(name) for name in wanted}
        if header != wanted:
            raise self._wrong(f"{header}; expected {wanted}")
        try:
            verdicts = [_from_document(fields) for fields in document["partitions"]]
            self.verdicts = {TopicPartition(one.topic, one.partition): one for one in verdicts}
        except (AttributeError, KeyError, TypeError) as error:
            raise self._wrong(
                f"a field is missing or wrong ({error}); an older release may have written it"
            ) from None

    def note(self, verdict: PartitionVerdict) -> None:
        """Remember the verdict so far of a partition."""
        self.verdicts[TopicPartition(verdict.topic, verdict.partition)] = verdict

    def save(self, *, now: float, is_complete: bool = False) -> None:
        """Write the file.

        Args:
            now: the time in seconds since the epoch, which the file shows.
            is_complete: whether all partitions were compared to the end; else the file never says
                that the sides are equal (default False).

        Raises:
            OSError: it can't be written.
        """
        document = {
            "version": _VERSION,
            "bridge": self._bridge,
            "timestamps": self._timestamps,
            "at": now,
            "equal": is_complete and all(verdict.is_equal for verdict in self.verdicts.values()),
            "partitions": [asdict(self.verdicts[tp]) for tp in sorted(self.verdicts)],
        }
        # In the same folder, so that the replacement is atomic; with the process id, so that two
        # processes don't write the same file.
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            fresh.replace(self._path)
        finally:
            fresh.unlink(missing_ok=True)

    def _wrong(self, detail: str) -> IllegalArgumentError:
        return IllegalArgumentError(
            f"{self._path}: --resume can't go on with it: {detail}. Start without --resume, which "
            "reads all again and writes the file anew, or name another file with --state"
        )


@dataclass(frozen=True, slots=True)
class LastVerification:
    """When a verification last wrote its file, in seconds since the epoch, and its result."""

    at: float
    is_equal: bool
    count: int
    # The source offset up to which each partition was compared.
    ends: Mapping[TopicPartition, int]
    # The partitions with a difference.
    different: Sequence[PartitionVerdict]


def last_verification(path: Path) -> LastVerification | None:
    """Return the content of a file of `VerifyState`; None if there is none, or it can't be read."""
    try:
        document = json_object(path.read_text(encoding="utf-8"))
        verdicts = [_from_document(fields) for fields in document["partitions"]]
        count = sum(verdict.progress.source_count for verdict in verdicts)
        is_equal = bool(verdicts) and document["equal"]
        ends = {
            TopicPartition(verdict.topic, verdict.partition): verdict.progress.source_next
            for verdict in verdicts
        }
        different = [verdict for verdict in verdicts if verdict.first_difference is not None]
        return LastVerification(float(document["at"]), is_equal, count, ends, different)
    except (OSError, AttributeError, ValueError, KeyError, TypeError):
        return None


def state_path(config_path: Path) -> Path:
    """Return the default path of the state, given the path of a bridge's configuration file."""
    return config_path.with_suffix(".verify.json")


def _from_document(document: Mapping[str, Any]) -> PartitionVerdict:
    progress, verdict = (
        {
            name: _TUPLES[name](value) if name in _TUPLES and value is not None else value
            for name, value in fields.items()
        }
        for fields in (document["progress"], document)
    )
    return PartitionVerdict(**{**verdict, "progress": CheckProgress(**progress)})
