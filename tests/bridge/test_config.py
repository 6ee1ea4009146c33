"""The file of a bridge: what it means, and what an error in it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokafka08.bridge.config import SECTIONS, BridgeConfig, parse_config, read_config
from aiokafka08.errors import IllegalArgumentError

MINIMAL = """
name = "x"
[source]
bootstrap = "old1:9092"
[target]
bootstrap = "new1:9092"
[topics]
include = ["orders"]
"""


def parse(text: str) -> BridgeConfig:
    return parse_config(MINIMAL + text)


def test_minimal_file_has_defaults() -> None:
    config = parse("")
    assert (config.source.bootstrap, config.target.bootstrap) == ("old1:9092", "new1:9092")
    assert config.source.zookeeper is None
    assert config.listen is None
    assert config.groups.store == "auto"
    assert not config.groups.includes("billing")
    assert (config.copy.transaction_s, config.copy.on_loss) == (1.0, "stop")
    assert config.position_group == "aiokafka08-bridge.x"
    assert config.offsets_topic == "aiokafka08-bridge.x.offsets"
    assert config.transactional_id(1) == "aiokafka08-bridge.x.1"


def test_file_of_issue_is_accepted() -> None:
    """The keys that scripts rely on."""
    config = parse_config(
        'name = "x"\n'
        '[source]\nbootstrap = "a:1"\nzookeeper = "z:2181"\n'
        '[target]\nbootstrap = "b:1"\n'
        '[topics]\ninclude = ["orders", "clicks-.*"]\n'
        '[groups]\ninclude = ["billing"]\nstore = "auto"\n'
    )
    assert config.source.zookeeper == "z:2181"
    assert config.groups.includes("billing")


def test_all_sections_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(
        'name = "x"\nlisten = ":9309"\n'
        '[source]\nbootstrap = "a:1"\nalias = "old"\n'
        '[source.properties]\n"request.timeout.ms" = 5000\n'
        '[target]\nbootstrap = "b:1"\ncompression = "zstd"\nreplication_factor = 3\n'
        '[target.topic_config]\n"retention.ms" = -1\n'
        '[target.properties]\n"ssl.key.password" = "geheim"\n'
        '[topics]\ninclude = [".*"]\nexclude = ["tmp-.*"]\n'
        'rename = [{ pattern = "(.*)", to = "old.\\\\1" }]\n'
        '[groups]\ninclude = [".*"]\nstore = "file"\nfile = "groups.json"\ncontinuous = true\n'
        '[copy]\nproducers = 4\nrate = "20MB/s"\non_loss = "skip"\ntimestamps = "now"\n'
    )
    config = read_config(path)
    assert config.source.network == {"request_timeout_ms": 5000}
    assert config.target.topic_config == {"retention.ms": "-1"}
    assert config.groups.file == tmp_path / "groups.json"
    assert (config.copy.producers, config.copy.rate) == (4, 20e6)
    assert config.topics.target_name("orders") == "old.orders"
    assert "geheim" not in repr(config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[copy]\nproducer = 2", "copy.producer=…: unknown key; similar: producers"),
        ("[copy]\nproducers = 0", "copy.producers=0: expected an integer from 1 to 64"),
        ("[copy]\nproducers = true", "copy.producers=True: expected an integer"),
        ("[copy]\ntransaction_s = 0", "copy.transaction_s=0: expected seconds from 0.01 to 300"),
        ("[copy]\nrate = '0MB'", "copy.rate='0MB': expected bytes per second"),
        ("[copy]\non_loss = 'go'", "copy.on_loss='go': expected one of stop, skip"),
        ("[groups]\nstore = 'file'", "groups.store='file', groups.file=None: expected a file"),
        ("[groups]\ninclude = 'billing'", "groups.include='billing': expected a list"),
        ("[groups]\ninclude = ['(']", "groups.include='(': missing )"),
        ("[verify]\n", "verify=…: unknown key; expected one of name, listen, source"),
        ("[target.properties]\nacks = 1", "the bridge sets it itself"),
        ("[source.properties]\nacks = 1", "source.properties.acks='1': expected one of"),
    ],
)
def test_error_names_key_value_and_expectation(text: str, expected: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        parse(text)
    assert "bridge.toml: " in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('name = "x"', "", "name: missing; the key has no default"),
        ('name = "x"', 'name = "a b"', "name='a b': expected 1 to 100 characters"),
        ('include = ["orders"]', "", "topics.include: missing"),
        ('include = ["orders"]', "include = []", "topics.include=[]: expected at least one"),
        ('"old1:9092"', '"old1:port"', "source.bootstrap='old1:port'"),
        ('"new1:9092"', '"kafka://new1"', "target.bootstrap='kafka://new1'"),
        ("[topics]", "[topics", "not TOML"),
    ],
)
def test_error_in_minimal_file_is_named(old: str, new: str, expected: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        parse_config(MINIMAL.replace(old, new))
    assert expected in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IllegalArgumentError, match=r"none\.toml: No such file"):
        read_config(tmp_path / "none.toml")


def test_secret_is_not_in_error() -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        parse('[source.properties]\n"sasl.password" = "geheim"')
    assert "geheim" not in str(caught.value)


def test_page_has_each_key_with_its_default() -> None:
    """docs/bridge-daemon.md lists what `SECTIONS` has, in the same order."""
    page = (Path(__file__).parents[2] / "docs/bridge-daemon.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]*?) ?\|", page.partition("## The file")[2], re.M)
    expected = []
    for section, keys in SECTIONS.items():
        for name, key in keys.items():
            default = key.default
            shown = (
                f"`{default}`"
                if isinstance(default, str)
                else f"{default:g}"
                if isinstance(default, float)
                else str(default).lower()
            )
            if default is None or default in ((), {}):
                shown = "required" if key.is_required else ""
            expected.append((f"{section}.{name}" if section else name, shown))
    assert rows[: len(expected)] == expected
