"""kcat's command line: parse its one-letter flags.

Invariant: pure. Each flag of kcat 1.7.1 has its meaning here, or is refused with the reason.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka08._tools.records.delimiters import unescape
from aiokafka08.errors import IllegalArgumentError

_FLAGS: Final = "PCG:LQM:t:p:b:z:o:eED:K:k:H:Od:qvF:X:c:Tuf:ZlVhs:r:Jm:U"
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_WORDS: Final = ("beginning", "end", "stored")


@dataclass(slots=True)
class KcatOptions:
    """The values of the flags, with kcat's defaults."""

    # P, C, G, L or Q; empty: P if stdin isn't a terminal, else C.
    mode: str = ""
    brokers: str | None = None
    topic: str | None = None
    # In mode Q: topic, partition, milliseconds.
    queries: list[tuple[str, int, int]] = field(default_factory=list)
    partition: int | None = None
    group: str | None = None
    # Files in mode P, topics in mode G.
    names: list[str] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)
    config: str | None = None
    timeout_s: float = 5
    # In the form of `--from`.
    start: str | None = None
    # In the form of `--to`.
    stop: str | None = None
    exit_at_end: bool = False
    count: int | None = None
    template: str | None = None
    json: bool = False
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    key: bytes | None = None
    # In the form NAME=VALUE.
    headers: list[str] = field(default_factory=list)
    null: bool = False
    one_file: bool = False
    tee: bool = False
    compression: str | None = None
    serdes: list[str] = field(default_factory=list)
    registry: str | None = None
    verbosity: int = 1
    # Flags that were given but have no effect beside -f or -J, as in kcat 1.7.1.
    ignored: list[str] = field(default_factory=list)
    # Print this and end: "help", "version", "list" or "dump" (of the properties).
    show: str | None = None


def parse_kcat(arguments: Sequence[str]) -> KcatOptions:
    """Parse kcat's arguments.

    Raises:
        IllegalArgumentError: a flag is unknown or refused, or has a wrong value, or flags don't go
            together.
    """
    try:
        flags, names = getopt.gnu_getopt(list(arguments), _FLAGS)
    except getopt.GetoptError as error:
        raise IllegalArgumentError(f"kcat: {error}. See 'aiokafka08 kcat -h'") from None
    options = KcatOptions(names=names)
    topics: list[str] = []
    for flag, value in flags:
        _apply(options, topics, flag[1], value)
    if options.show is not None:
        return options
    if options.mode == "Q":
        options.queries = [_query(topic) for topic in topics]
        if not topics:
            raise IllegalArgumentError("kcat -Q: expected -t TOPIC:PARTITION:TIMESTAMP")
    elif topics:
        options.topic = topics[-1]
    _check(options)
    if options.template is not None or options.json:
        without_effect = ("-D", "-K") if not options.json else ("-K",)
        options.ignored = [
            flag for flag in without_effect if any(flag == used for used, _ in flags)
        ]
    return options


def _apply(options: KcatOptions, topics: list[str], flag: str, value: str) -> None:
    match flag:
        case "P" | "C" | "L" | "Q" | "G":
            if options.mode not in ("", flag):
                raise IllegalArgumentError(f"kcat -{flag}: -{options.mode} is given too")
            options.mode = flag
            options.group = value if flag == "G" else options.group
        case "M":
            raise IllegalArgumentError(
                "kcat -M: expected another mode. A cluster in memory runs with 'aiokafka08 cluster'"
            )
        case "H":
            options.headers.append(value)
        case "t":
            topics.append(value)
        case "o":
            _set_position(options, value)
        case "p":
            number = _integer(flag, value)
            options.partition = None if number < 0 else number
        case "c":
            options.count = max(_integer(flag, value), 0) or None
        case "m":
            options.timeout_s = max(_integer(flag, value), 1)
        case "D":
            options.delimiter = unescape("kcat -D", value)
        case "K":
            options.key_delimiter = unescape("kcat -K", value)
        case "k":
            options.key = value.encode(errors="surrogateescape")
        case "X":
            if value in ("list", "help", "dump"):
                options.show = "dump" if value == "dump" else "list"
            else:
                options.properties.append(value)
        case "s":
            options.serdes.append(value)
        case "q":
            options.verbosity = 0
        case "v":
            options.verbosity += 1
        case "h" | "V":
            options.show = "help" if flag == "h" else "version"
        case "U":
            raise IllegalArgumentError("kcat -U: kcat's own unit tests aren't here")
        case _:
            _set_simple(options, flag, value)


def _set_simple(options: KcatOptions, flag: str, value: str) -> None:
    """Set a value that needs no check."""
    # -u, -E, -d and -O set nothing: output isn't buffered, and -O has no effect in kcat 1.7.1.
    text = {"b": "brokers", "F": "config", "f": "template", "r": "registry", "z": "compression"}
    switches = {
        "e": "exit_at_end",
        "J": "json",
        "Z": "null",
        "l": "one_file",
        "T": "tee",
    }
    if flag in text:
        setattr(options, text[flag], value)
    elif flag in switches:
        setattr(options, switches[flag], True)


def _set_position(options: KcatOptions, text: str) -> None:
    prefix, at, number = text.partition("@")
    if at and prefix in ("s", "e") and _INTEGER.fullmatch(number):
        if prefix == "s":
            options.start = f"@{number}"
        else:
            options.stop = f"@{number}"
    elif text in _WORDS or _INTEGER.fullmatch(text):
        options.start = text
    else:
        raise IllegalArgumentError(
            f"kcat -o {text}: expected beginning, end, stored, N, -N, s@MS or e@MS"
        )


def _query(text: str) -> tuple[str, int, int]:
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not all(map(_INTEGER.fullmatch, parts[1:])):
        raise IllegalArgumentError(
            f"kcat -Q -t {text}: expected TOPIC:PARTITION:TIMESTAMP, in milliseconds"
        )
    return parts[0], int(parts[1]), int(parts[2])


def _integer(flag: str, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise IllegalArgumentError(f"kcat -{flag} {text}: expected an integer")
    return int(text)


def _check(options: KcatOptions) -> None:
    if options.mode in ("P", "C") and options.topic is None:
        raise IllegalArgumentError(f"kcat -{options.mode}: expected -t TOPIC")
    if options.mode == "G" and not (options.names or options.topic):
        raise IllegalArgumentError("kcat -G GROUP: expected the topics after it")
    if options.mode == "G" and options.start is not None and options.start.startswith("@"):
        raise IllegalArgumentError("kcat -G with -o s@...: expected another position")
    if options.names and options.mode in ("C", "L", "Q"):
        raise IllegalArgumentError(
            f"kcat -{options.mode}: {options.names[0]!r} after the flags; files belong to -P, "
            "topics to -G"
        )
    if options.serdes and options.mode in ("P", "L", "Q"):
        raise IllegalArgumentError(f"kcat -s with -{options.mode}: expected -C or -G")
    if options.registry is not None and not any(
        spec.rpartition("=")[2] == "avro" for spec in options.serdes
    ):
        raise IllegalArgumentError(f"kcat -r {options.registry}: expected -s avro too")
    if options.one_file and len(options.names) != 1:
        raise IllegalArgumentError("kcat -l: expected one file")
    if not options.delimiter and options.mode == "P":
        raise IllegalArgumentError("kcat -D '': expected at least one byte with -P")
