"""`BridgeConfig`: the TOML file of a bridge, parsed and checked.

`SECTIONS` has every key with its default; `read_config` is the entry point.

Invariant: no secret is in a `repr()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from aiokafka08._core.config_file import (
    Key,
    Sections,
    a_boolean,
    a_rate,
    a_table,
    a_text,
    an_integer,
    check_sections,
    named,
    one_of,
    read_file,
    seconds,
    texts,
)
from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._core.net.config import ZookeeperCheck, parse_bootstrap_servers
from aiokafka08._core.properties import (
    NETWORK,
    TLS,
    TlsOptions,
    expected_one_of,
    hide_value,
    is_tls,
    show_option,
    tls_options,
)
from aiokafka08._core.sasl.java_properties import SASL, is_sasl, sasl_options
from aiokafka08._core.zookeeper.security import PROPERTIES as ZOOKEEPER_SECURITY
from aiokafka08._core.zookeeper.security import options_of_properties
from aiokafka08._wording import shorten
from aiokafka08.bridge.topic_map import RenameRule, TopicMap, rename_rule
from aiokafka08.errors import IllegalArgumentError

GroupSource = Literal["auto", "zookeeper", "kafka", "both", "file"]
OnLoss = Literal["stop", "skip"]
Timestamps = Literal["keep", "now"]

MOST_PRODUCERS: Final = 64
# Each start initialises all transactional ids that were ever in use, so their number is bounded.

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]([a-zA-Z0-9._-]{0,98}[a-zA-Z0-9_-])?")


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """The cluster to copy from."""

    bootstrap: str
    # None: groups and topics in ZooKeeper are out of reach.
    zookeeper: str | None
    zookeeper_check: ZookeeperCheck
    # Names the cluster in MirrorMaker 2's topics.
    alias: str
    # Arguments of each client of this package, without the address.
    network: Mapping[str, Any]
    tls: TlsOptions | None
    # The properties by Java's names, from which `network` and `tls` are made.
    properties: Mapping[str, str] = field(repr=False)
    zookeeper_options: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """The cluster to copy to."""

    bootstrap: str
    compression: str
    # -1 is the target's default.
    replication_factor: int
    # For each topic that the bridge creates; they override the settings that come from the source.
    topic_config: Mapping[str, str]
    # librdkafka's properties, for each client of the target.
    properties: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """The groups whose offsets are translated."""

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    # Where the source keeps the offsets; with "file" they are in `file`.
    store: GroupSource
    file: Path | None
    # Translate the offsets every `interval_s` seconds while the bridge runs.
    continuous: bool
    interval_s: float
    # Whether a group's offset may go back.
    rewind: bool

    def includes(self, group: str) -> bool:
        """Return whether a group of the source is translated."""
        return NamePatterns(self.include, self.exclude).includes(group)


@dataclass(frozen=True, slots=True)
class CopyConfig:
    """How records are copied. Sizes are in bytes; `rate` is in bytes per second, None for no
    limit.
    """

    # The number of transactional ids.
    producers: int
    # A transaction ends at the first of these three limits.
    transaction_records: int
    transaction_bytes: int
    transaction_s: float
    rate: float | None
    timestamps: Timestamps
    on_loss: OnLoss
    # Where a partition that was never copied begins.
    start: Literal["earliest", "latest"]
    fetch_bytes: int
    buffer_bytes: int
    # The longest time between two looks for new topics and leaders (`look_s`).
    refresh_s: float
    # Group offsets expire at the target, so an idle position is committed again after this time.
    recommit_s: float
    # How long a cluster may be away before the run fails.
    outage_s: float

    @property
    def look_s(self) -> float:
        """Seconds between looks for new topics and leaders; at least four looks in `outage_s`."""
        return min(self.refresh_s, self.outage_s / 4)


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """A checked bridge file."""

    name: str
    source: SourceConfig
    target: TargetConfig
    topics: TopicMap
    groups: GroupsConfig
    copy: CopyConfig
    # The address of /metrics and /healthz, None for none.
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
        """The topic of the target with the runs that map source offsets to target offsets."""
        return f"aiokafka08-bridge.{self.name}.offsets"

    @property
    def state_topic(self) -> str:
        """The topic of the target in which each start of the process claims the bridge."""
        return f"aiokafka08-bridge.{self.name}.state"

    def transactional_id(self, number: int) -> str:
        """Return the transactional id of the producer with this number, from 0 on."""
        return f"aiokafka08-bridge.{self.name}.{number}"


# --- keys -----------------------------------------------------------------------------------------


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


SECTIONS: Final[Sections] = {
    "": {
        "name": Key(a_text, is_required=True),
        "listen": Key(a_text),
    },
    "source": {
        "bootstrap": Key(a_text, is_required=True),
        "zookeeper": Key(a_text),
        "zookeeper_check": Key(one_of("refuse", "warn"), "refuse"),
        "alias": Key(a_text, "source"),
        "properties": Key(a_table, {}),
    },
    "target": {
        "bootstrap": Key(a_text, is_required=True),
        "compression": Key(one_of("none", "gzip", "snappy", "lz4", "zstd"), "lz4"),
        "replication_factor": Key(an_integer(-1, 32767), -1),
        "topic_config": Key(a_table, {}),
        "properties": Key(a_table, {}),
    },
    "topics": {
        "include": Key(texts, is_required=True),
        "exclude": Key(texts, ()),
        "rename": Key(_renames, ()),
        "append": Key(texts, ()),
    },
    "groups": {
        "include": Key(texts, ()),
        "exclude": Key(texts, ()),
        "store": Key(one_of("auto", "zookeeper", "kafka", "both", "file"), "auto"),
        "file": Key(a_text),
        "continuous": Key(a_boolean, False),
        "interval_s": Key(seconds(0.1, 86400), 60.0),
        "rewind": Key(a_boolean, False),
    },
    "copy": {
        "producers": Key(an_integer(1, MOST_PRODUCERS), 1),
        "transaction_records": Key(an_integer(1), 200_000),
        "transaction_bytes": Key(an_integer(1), 128 * 1024 * 1024),
        "transaction_s": Key(seconds(0.01, 300), 1.0),
        "rate": Key(a_rate),
        "timestamps": Key(one_of("keep", "now"), "keep"),
        "on_loss": Key(one_of("stop", "skip"), "stop"),
        "start": Key(one_of("earliest", "latest"), "earliest"),
        "fetch_bytes": Key(an_integer(1024), 2 * 1024 * 1024),
        "buffer_bytes": Key(an_integer(65536), 32 * 1024 * 1024),
        "refresh_s": Key(seconds(0.1, 86400), 30.0),
        "recommit_s": Key(seconds(0.1, 86400), 3600.0),
        "outage_s": Key(seconds(1, 86400 * 30), 86400.0),
    },
}
# Section → key → its check and default.


_first_rules: ContextVar[tuple[RenameRule, ...]] = ContextVar("first_rules", default=())


@contextmanager
def renames_first(rules: Sequence[RenameRule]) -> Iterator[None]:
    """Let `read_config` put the rules of the command line before those of the file.

    So each command that reads the file maps topics by the same rules while the block runs.
    """
    token = _first_rules.set(tuple(rules))
    try:
        yield
    finally:
        _first_rules.reset(token)


def read_config(path: Path) -> BridgeConfig:
    """Read and check the file of a bridge, with the rules of `renames_first`.

    Raises:
        IllegalArgumentError: the file can't be read or isn't TOML, or a key or value is wrong.
    """
    config = parse_config(read_file(path, "the TOML file of a bridge"), path)
    rules = (*_first_rules.get(), *config.topics.rename)
    return replace(config, topics=replace(config.topics, rename=rules))


def parse_config(text: str, path: Path = Path("bridge.toml")) -> BridgeConfig:
    """Parse and check the text of a bridge's file.

    Args:
        text: TOML.
        path: the file's path for errors; paths in the text are relative to its folder.

    Raises:
        IllegalArgumentError: the text isn't TOML, or a key or value is wrong.
    """
    with named(path):
        return _config(check_sections(text, SECTIONS), path)


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
            include=compile_patterns("topics.include", topics["include"]),
            exclude=compile_patterns("topics.exclude", topics["exclude"]),
            append=compile_patterns("topics.append", topics["append"]),
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


# Exactly-once depends on these, so the bridge sets them itself.
_OWNED_PROPERTIES: Final = frozenset(
    {
        "acks", "bootstrap.servers", "client.id", "compression.codec", "compression.type",
        "enable.auto.commit", "enable.idempotence", "group.id", "isolation.level",
        "metadata.broker.list", "partitioner", "request.required.acks", "transactional.id",
    }
)  # fmt: skip


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
            "include": compile_patterns("groups.include", values["include"]),
            "exclude": compile_patterns("groups.exclude", values["exclude"]),
            "file": None if file is None else path.parent / file,
        }
    )
