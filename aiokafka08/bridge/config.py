"""`BridgeConfig`: the TOML file of a bridge, parsed and checked.

    name = "old-to-new"
    [source]
    bootstrap = "old1:9092"
    zookeeper = "zk1:2181"
    [target]
    bootstrap = "new1:9092"
    [topics]
    include = ["orders", "clicks-.*"]
    [groups]
    include = ["billing"]
    store = "auto"

`SECTIONS` has every key with its default; `read_config` is the entry. `renames_first` adds the
rules of `--rename` of the command line.

Invariants: a key that isn't in `SECTIONS` is an error that names similar ones. An error names the
file, the key, the value (unless it may be a secret) and what is expected. No secret is in a
`repr()`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from aiokafka08._core.concurrency.rate import parse_rate
from aiokafka08._core.net.config import ZookeeperCheck, parse_bootstrap_servers
from aiokafka08._core.properties import (
    NETWORK,
    TLS,
    TlsOptions,
    expected_one_of,
    hide_value,
    is_tls,
    shorten,
    show_option,
    tls_options,
)
from aiokafka08._core.sasl.java_properties import SASL, is_sasl, sasl_options
from aiokafka08._core.zookeeper.security import PROPERTIES as ZOOKEEPER_SECURITY
from aiokafka08._core.zookeeper.security import options_of_properties
from aiokafka08.bridge.topic_map import RenameRule, TopicMap, compiled, rename_rule
from aiokafka08.errors import IllegalArgumentError, KafkaError

GroupSource = Literal["auto", "zookeeper", "kafka", "both", "file"]
OnLoss = Literal["stop", "skip"]
Timestamps = Literal["keep", "now"]

MOST_PRODUCERS: Final = 64
"""The most transactional ids of a bridge; each start initialises all that were ever in use."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]([a-zA-Z0-9._-]{0,98}[a-zA-Z0-9_-])?")


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """The cluster to copy from.

    `bootstrap` and `zookeeper` are addresses (`zookeeper` None: groups and topics in ZooKeeper are
    out of reach); `zookeeper_check` and `zookeeper_options` are the clients' options; `network` are
    arguments of each client of this package, without the address; `alias` names the cluster in
    MirrorMaker 2's topics. `properties` are what `network` and `tls` were read from, by Java's
    names.
    """

    bootstrap: str
    zookeeper: str | None
    zookeeper_check: ZookeeperCheck
    alias: str
    network: Mapping[str, Any]
    tls: TlsOptions | None
    properties: Mapping[str, str] = field(repr=False)
    zookeeper_options: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """The cluster to copy to.

    `properties` are librdkafka's and go to each of its clients. `compression` is that of what the
    bridge writes. `replication_factor` -1 is the target's default, `topic_config` are settings of
    each topic that the bridge creates; they override those that come from the source.
    """

    bootstrap: str
    compression: str
    replication_factor: int
    topic_config: Mapping[str, str]
    properties: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """The groups whose offsets are translated; a pattern matches the whole name.

    `store` says where they are at the source, `file` has them if it is "file". `continuous`
    translates them every `interval_s` seconds while the bridge runs. `rewind` allows that a group's
    offset goes back.
    """

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    store: GroupSource
    file: Path | None
    continuous: bool
    interval_s: float
    rewind: bool

    def includes(self, group: str) -> bool:
        """Return whether a group of the source is translated."""
        if any(pattern.fullmatch(group) for pattern in self.exclude):
            return False
        return any(pattern.fullmatch(group) for pattern in self.include)


@dataclass(frozen=True, slots=True)
class CopyConfig:
    """How records are copied.

    `producers` is the number of transactional ids. A transaction ends at `transaction_records`, at
    `transaction_bytes` of keys and values, or at `transaction_s`. `rate` is the limit in bytes per
    second, None for none. `refresh_s` is the longest time between two looks (`look_s`).
    `recommit_s` is the time after which a position that hasn't moved is committed again. `start` is
    where a partition begins that was never copied. `outage_s` is how long a cluster may be away
    until the run fails.
    """

    producers: int
    transaction_records: int
    transaction_bytes: int
    transaction_s: float
    rate: float | None
    timestamps: Timestamps
    on_loss: OnLoss
    start: Literal["earliest", "latest"]
    fetch_bytes: int
    buffer_bytes: int
    refresh_s: float
    recommit_s: float
    outage_s: float

    @property
    def look_s(self) -> float:
        """The time between two looks for new topics and for leaders, four of them in `outage_s`."""
        return min(self.refresh_s, self.outage_s / 4)


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """A checked bridge file. `listen` is the address of /metrics and /healthz, None for none."""

    name: str
    source: SourceConfig
    target: TargetConfig
    topics: TopicMap
    groups: GroupsConfig
    copy: CopyConfig
    listen: str | None
    path: Path

    @property
    def client_id(self) -> str:
        """The client id at both clusters, with which log lines begin."""
        return f"aiokafka08-bridge.{self.name}"

    @property
    def position_group(self) -> str:
        """The group of the target whose committed offsets are the positions in the source."""
        return f"aiokafka08-bridge.{self.name}"

    @property
    def offsets_topic(self) -> str:
        """The topic of the target that has the exact runs of offsets."""
        return f"aiokafka08-bridge.{self.name}.offsets"

    @property
    def state_topic(self) -> str:
        """The topic of the target in which each start of the bridge claims it."""
        return f"aiokafka08-bridge.{self.name}.state"

    def transactional_id(self, number: int) -> str:
        """Return the transactional id of a producer, from 0 on."""
        return f"aiokafka08-bridge.{self.name}.{number}"


# --- keys -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Key:
    """A key: its check, which returns the value or raises ValueError(expected), and default."""

    check: Callable[[object], Any]
    default: Any = None
    is_required: bool = False


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a non-empty string")
    return value.strip()


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise ValueError("a list of non-empty strings")
    return tuple(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _integer(least: int, most: int = 2**31 - 1) -> Callable[[object], int]:
    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"an integer from {least} to {most}")
        return value

    return check


def _seconds(least: float, most: float) -> Callable[[object], float]:
    def check(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:  # type: ignore[operator]
            raise ValueError(f"seconds from {least:g} to {most:g}")
        return float(value)  # type: ignore[arg-type]

    return check


def _choice(*values: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError(expected_one_of(values))
        return value

    return check


def _table(value: object) -> dict[str, str]:
    """Return a table of properties; numbers and booleans become the text that Kafka expects."""
    if not isinstance(value, dict):
        raise ValueError("a table of properties")
    texts: dict[str, str] = {}
    for name, setting in value.items():
        if isinstance(setting, bool):
            texts[name] = str(setting).lower()
        elif isinstance(setting, str | int | float):
            texts[name] = str(setting)
        else:
            raise ValueError(f"a string, number or boolean for {name}")
    return texts


def _renames(value: object) -> tuple[tuple[str, str], ...]:
    expected = 'a list of tables such as { pattern = "(.*)", to = "old.\\\\1" }'
    if not isinstance(value, list):
        raise ValueError(expected)
    rules: list[tuple[str, str]] = []
    for rule in value:
        match rule:
            case {"pattern": str(pattern), "to": str(to)} if len(rule) == 2:
                rules.append((pattern, to))
            case _:
                raise ValueError(expected)
    return tuple(rules)


def _rate(value: object) -> float:
    try:
        return parse_rate(str(value))
    except IllegalArgumentError:
        raise ValueError('bytes per second > 0, such as "20MB/s" or "512KiB/s"') from None


SECTIONS: Final[Mapping[str, Mapping[str, _Key]]] = {
    "": {
        "name": _Key(_text, is_required=True),
        "listen": _Key(_text),
    },
    "source": {
        "bootstrap": _Key(_text, is_required=True),
        "zookeeper": _Key(_text),
        "zookeeper_check": _Key(_choice("refuse", "warn"), "refuse"),
        "alias": _Key(_text, "source"),
        "properties": _Key(_table, {}),
    },
    "target": {
        "bootstrap": _Key(_text, is_required=True),
        "compression": _Key(_choice("none", "gzip", "snappy", "lz4", "zstd"), "lz4"),
        "replication_factor": _Key(_integer(-1, 32767), -1),
        "topic_config": _Key(_table, {}),
        "properties": _Key(_table, {}),
    },
    "topics": {
        "include": _Key(_texts, is_required=True),
        "exclude": _Key(_texts, ()),
        "rename": _Key(_renames, ()),
        "append": _Key(_texts, ()),
    },
    "groups": {
        "include": _Key(_texts, ()),
        "exclude": _Key(_texts, ()),
        "store": _Key(_choice("auto", "zookeeper", "kafka", "both", "file"), "auto"),
        "file": _Key(_text),
        "continuous": _Key(_boolean, False),
        "interval_s": _Key(_seconds(0.1, 86400), 60.0),
        "rewind": _Key(_boolean, False),
    },
    "copy": {
        "producers": _Key(_integer(1, MOST_PRODUCERS), 1),
        "transaction_records": _Key(_integer(1), 200_000),
        "transaction_bytes": _Key(_integer(1), 128 * 1024 * 1024),
        "transaction_s": _Key(_seconds(0.01, 300), 1.0),
        "rate": _Key(_rate),
        "timestamps": _Key(_choice("keep", "now"), "keep"),
        "on_loss": _Key(_choice("stop", "skip"), "stop"),
        "start": _Key(_choice("earliest", "latest"), "earliest"),
        "fetch_bytes": _Key(_integer(1024), 2 * 1024 * 1024),
        "buffer_bytes": _Key(_integer(65536), 32 * 1024 * 1024),
        "refresh_s": _Key(_seconds(0.1, 86400), 30.0),
        "recommit_s": _Key(_seconds(0.1, 86400), 3600.0),
        "outage_s": _Key(_seconds(1, 86400 * 30), 86400.0),
    },
}
"""Section → key → its check and default."""


_first_rules: ContextVar[tuple[RenameRule, ...]] = ContextVar("first_rules", default=())


@contextmanager
def renames_first(rules: Sequence[RenameRule]) -> Iterator[None]:
    """Let `read_config` put rules in front of those of the file, while the block runs.

    So each command that reads the file maps topics by the same rules.

    Args:
        rules: those of the command line, in its order.
    """
    token = _first_rules.set(tuple(rules))
    try:
        yield
    finally:
        _first_rules.reset(token)


def read_config(path: Path) -> BridgeConfig:
    """Read and check the file of a bridge, with the rules of `renames_first`.

    Raises:
        IllegalArgumentError: it can't be read, isn't TOML, or a key or value is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else str(error)
        raise IllegalArgumentError(
            f"{path}: {detail}; expected the TOML file of a bridge"
        ) from None
    config = parse_config(text, path)
    rules = (*_first_rules.get(), *config.topics.rename)
    return replace(config, topics=replace(config.topics, rename=rules))


def parse_config(text: str, path: Path = Path("bridge.toml")) -> BridgeConfig:
    """Parse and check the text of a bridge's file.

    Args:
        text: TOML.
        path: where it came from: for errors, and for the paths in it, which are relative to its
            folder (default "bridge.toml").

    Raises:
        IllegalArgumentError: it isn't TOML, or a key or value is wrong.
    """
    try:
        values = _checked(tomllib.loads(text))
        return _config(values, path)
    except tomllib.TOMLDecodeError as error:
        raise IllegalArgumentError(f"{path}: not TOML: {error}") from None
    except KafkaError as error:
        raise IllegalArgumentError(f"{path}: {error.text}") from None


def _checked(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return section → key → checked value, with defaults."""
    sections = {name: keys for name, keys in SECTIONS.items() if name}
    tables: dict[str, Any] = {"": {k: v for k, v in document.items() if k not in sections}}
    for section in sections:
        tables[section] = document.get(section, {})
        if not isinstance(tables[section], dict):
            raise IllegalArgumentError(
                f"{section}={shorten(tables[section])}: expected a section [{section}]"
            )
    values: dict[str, dict[str, Any]] = {}
    for section, keys in SECTIONS.items():
        prefix = f"{section}." if section else ""
        for name in tables[section]:
            if name not in keys:
                raise _unknown(prefix, name, (*keys, *(sections if not section else ())))
        values[section] = {
            name: _value(f"{prefix}{name}", key, tables[section].get(name))
            for name, key in keys.items()
        }
    return values


def _unknown(prefix: str, name: str, known: tuple[str, ...]) -> IllegalArgumentError:
    from difflib import get_close_matches

    similar = get_close_matches(name, known, n=3)
    expected = f"similar: {', '.join(similar)}" if similar else f"expected {expected_one_of(known)}"
    return IllegalArgumentError(f"{hide_value(prefix + name)}: unknown key; {expected}")


def _value(name: str, key: _Key, value: object) -> Any:
    if value is None:
        if key.is_required:
            raise IllegalArgumentError(f"{name}: missing; the key has no default")
        return key.default
    try:
        return key.check(value)
    except ValueError as error:
        shown = name if key.check is _table else f"{name}={shorten(value)}"
        raise IllegalArgumentError(f"{shown}: expected {error}") from None


# --- sections -------------------------------------------------------------------------------------


def _config(values: Mapping[str, dict[str, Any]], path: Path) -> BridgeConfig:
    top, copy, topics = values[""], values["copy"], values["topics"]
    if _NAME.fullmatch(top["name"]) is None:
        raise IllegalArgumentError(
            f"name={shorten(top['name'])}: expected 1 to 100 characters out of a-z, A-Z, 0-9, '.', "
            "'_' and '-', without a '.' at either end: topics and groups of the target get it"
        )
    if not topics["include"]:
        raise IllegalArgumentError("topics.include=[]: expected at least one pattern")
    return BridgeConfig(
        name=top["name"],
        source=_source(values["source"]),
        target=_target(values["target"]),
        topics=TopicMap(
            include=compiled("topics.include", topics["include"]),
            exclude=compiled("topics.exclude", topics["exclude"]),
            append=compiled("topics.append", topics["append"]),
            rename=tuple(rename_rule("topics.rename", *rule) for rule in topics["rename"]),
        ),
        groups=_groups(values["groups"], path),
        copy=CopyConfig(**copy),
        listen=top["listen"],
        path=path,
    )


def _address(section: str, text: str) -> str:
    try:
        parse_bootstrap_servers(text)
    except IllegalArgumentError as error:
        detail = error.text.removeprefix("bootstrap_servers").removeprefix(": ")
        raise IllegalArgumentError(f"{section}.bootstrap={shorten(text)}: {detail}") from None
    return text


def _source(values: Mapping[str, Any]) -> SourceConfig:
    properties: dict[str, str] = values["properties"]
    network: dict[str, Any] = {}
    for name, text in properties.items():
        option = f"source.properties.{name}"
        if name in NETWORK and name not in ("bootstrap.servers", "client.id"):
            argument, parse = NETWORK[name]
            network[argument] = parse(option, text)
        elif name in SASL and not is_sasl(properties):
            raise IllegalArgumentError(
                f"{hide_value(option)}: has no effect; expected security.protocol=SASL_PLAINTEXT "
                "or SASL_SSL beside it"
            )
        elif name in ZOOKEEPER_SECURITY and values["zookeeper"] is None:
            raise IllegalArgumentError(
                f"{hide_value(option)}: has no effect; expected source.zookeeper too"
            )
        elif name not in (*TLS, *SASL, *ZOOKEEPER_SECURITY):
            known = sorted(
                {*NETWORK, *TLS, *SASL, *ZOOKEEPER_SECURITY} - {"bootstrap.servers", "client.id"}
            )
            raise IllegalArgumentError(
                f"{show_option(option, text)}: expected {expected_one_of(known)}"
            )
    return SourceConfig(
        bootstrap=_address("source", values["bootstrap"]),
        zookeeper=values["zookeeper"],
        zookeeper_check=values["zookeeper_check"],
        alias=values["alias"],
        network=network | sasl_options(properties, "source.properties."),
        tls=tls_options(properties) if is_tls(properties) else None,
        properties=properties,
        zookeeper_options=options_of_properties(properties, "source.properties."),
    )


_OWNED_PROPERTIES: Final = frozenset(
    {
        "acks", "bootstrap.servers", "client.id", "compression.codec", "compression.type",
        "enable.auto.commit", "enable.idempotence", "group.id", "isolation.level",
        "metadata.broker.list", "partitioner", "request.required.acks", "transactional.id",
    }
)  # fmt: skip
"""Properties of librdkafka that the bridge sets itself: exactly-once depends on them."""


def _target(values: Mapping[str, Any]) -> TargetConfig:
    for name in values["properties"]:
        if name in _OWNED_PROPERTIES:
            raise IllegalArgumentError(
                f"target.properties.{name}: the bridge sets it itself; expected another property "
                "of librdkafka. target.bootstrap and target.compression are keys of their own"
            )
    if values["replication_factor"] == 0:
        raise IllegalArgumentError(
            "target.replication_factor=0: expected an integer >= 1, or -1 for the target's default"
        )
    return TargetConfig(**{**values, "bootstrap": _address("target", values["bootstrap"])})


def _groups(values: Mapping[str, Any], path: Path) -> GroupsConfig:
    store, file = values["store"], values["file"]
    if (store == "file") != (file is not None):
        raise IllegalArgumentError(
            f"groups.store={store!r}, groups.file={file!r}: expected a file with the store 'file', "
            "and none with another one"
        )
    return GroupsConfig(
        **{
            **values,
            "include": compiled("groups.include", values["include"]),
            "exclude": compiled("groups.exclude", values["exclude"]),
            "file": None if file is None else path.parent / file,
        }
    )
