"""The file of a bridge and the options in its place: what they mean, and what an error says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08._tools.cli.main import WRONG_USAGE
from aiokafka08.bridge.config import (
    SECTIONS,
    BridgeConfig,
    parse_config,
    read_config,
    renames_first,
)
from aiokafka08.bridge.topic_map import rename_rule
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import Done, RunCommand
from tests.bridge.clusters import Message, TargetReader, bridge_text, write
from tests.bridge.hand_copy import write_config
from tests.bridge.test_groups import commit
from tests.brokers import RealCluster
from tests.support.paths import ROOT

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


def test_added_rename_rules_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(f'{MINIMAL}rename = [{{ pattern = "(.*)", to = "file.\\\\1" }}]\n')
    with renames_first([rename_rule("--rename", "(or.*)", "first.\\1")]):
        added = read_config(path)
    assert added.topics.target_name("orders") == "first.orders"
    assert added.topics.target_name("tea") == "file.tea"
    assert read_config(path).topics.target_name("orders") == "file.orders"


@pytest.mark.parametrize("command", ["run", "status", "verify", "groups", "plan", "cutover"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("orders", "--rename='orders': expected FROM=TO, such as '(.*)=old.\\1'"),
        ("=old", "--rename='=old': expected FROM=TO, such as '(.*)=old.\\1'"),
        ("orders=", "--rename='orders=': expected FROM=TO, such as '(.*)=old.\\1'"),
        ("(=old", "--rename='(': missing ), unterminated subpattern at position 0; expected a"),
        ("orders=\\1", "--rename: to='\\\\1': invalid group reference 1 at position 1; expected a"),
    ],
)
def test_wrong_rename_is_wrong_usage_of_each_command(
    command: str, given: str, expected: str, cli: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "bridge.toml").write_text(MINIMAL)
    done = cli("bridge", command, str(tmp_path / "bridge.toml"), "--rename", given)
    assert (done.code, done.out) == (WRONG_USAGE, b"")
    assert done.err.startswith(f"aiokafka08: {expected}")


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_each_command_finds_a_renamed_copy(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """The first of the rules that match counts; the pattern of a rule may have a "="."""
    topic, group = unique_topic("renamed"), unique_topic("billing")
    copied = f"copy.{topic}"
    source.create_topic(topic)
    messages = [Message(None, b"%d" % number) for number in range(3)]
    await write(source, topic, {0: messages})
    await commit(source, group, "zookeeper", topic, 2)
    more = f'[groups]\ninclude = ["{group}"]\n'
    config = write_config(tmp_path, topic, source, target, [topic], more)
    rename = ("--rename", "(?=ren)(.*)=copy.\\1", "--rename", ".*=other")

    async def bridge(name: str, *options: str) -> Done:
        path = str(config.path)
        done = await asyncio.to_thread(cli, "bridge", name, path, *rename, *options)
        assert done.code == 0, done.err
        return done

    await bridge("run", "--until-caught-up")
    assert await asyncio.to_thread(reader.messages, copied) == {0: messages}
    (row,) = (await bridge("status", "--format", "json")).json
    assert (row["topic"], row["target"], row["position"], row["lag"]) == (topic, copied, 3, 0)
    verified = (await bridge("verify", "--format", "json")).json
    assert (verified["equal"], verified["partitions"][0]["target_count"]) == (True, 3)
    (row,) = (await bridge("groups", "--execute", "--format", "json")).json
    assert (row["target_topic"], row["target_offset"], row["outcome"]) == (copied, 2, "move")
    for name, options in (("plan", ()), ("cutover", ()), ("cutover", ("--execute",))):
        steps = (await bridge(name, *options, "--quiet", "0.1", "--format", "json")).json
        assert {one["step"]: one["ready"] for one in steps}["copy"]
    (row,) = (await bridge("cutover", "--rollback", "--dry-run", "--format", "json")).json
    assert (row["topic"], row["target_offset"], row["outcome"]) == (topic, 2, "same")


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_on_loss_of_the_command_line_comes_first(
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """The source's log ends before the position."""
    topic, path = unique_topic("loss"), tmp_path / "bridge.toml"

    async def run(on_loss: str, *options: str) -> Done:
        more = f'[copy]\non_loss = "{on_loss}"\n'
        path.write_text(bridge_text(topic, source, target, topic, more))
        command = ("bridge", "run", str(path), "--until-caught-up", *options)
        return await asyncio.to_thread(cli, *command)

    async with EmbeddedCluster(version="0.8.2", topics={topic: 1}) as source:
        await write(source, topic, {0: [Message(None, b"kept")] * 3})
        assert (await run("stop")).code == 0
    async with EmbeddedCluster(version="0.8.2", topics={topic: 1}) as source:
        await write(source, topic, {0: [Message(None, b"lost")] * 2})
        lost = "the source's log ends at 2, but offsets up to 2 were copied"
        for done in (await run("stop"), await run("skip", "--on-loss", "stop")):
            assert done.code == 1
            assert lost in done.err
        assert (await run("stop", "--on-loss", "skip")).code == 0
        await write(source, topic, {0: [Message(None, b"later")]})
        assert (await run("stop")).code == 0
        wrong = await run("stop", "--on-loss", "go")
    assert wrong.code == WRONG_USAGE
    assert "invalid value for '--on-loss': 'go' is not one of 'stop', 'skip'" in wrong.err
    values = [b"kept", b"kept", b"kept", b"later"]
    found = await asyncio.to_thread(reader.messages, topic)
    assert found == {0: [Message(None, value) for value in values]}


def test_secret_is_not_in_error() -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        parse('[source.properties]\n"sasl.password" = "geheim"')
    assert "geheim" not in str(caught.value)
    sasl = '"security.protocol" = "SASL_PLAINTEXT"\n"sasl.mechanism" = "PLAIN"\n'
    user = '"sasl.username" = "me"\n"sasl.password" = "geheim"'
    source = parse(f"[source.properties]\n{sasl}{user}").source
    assert source.network["sasl_plain_password"] == "geheim"
    assert "geheim" not in repr(source.network)


def test_page_has_each_key_with_its_default() -> None:
    """docs/bridge.md lists what `SECTIONS` has, in the same order."""
    page = (ROOT / "docs/bridge.md").read_text()
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
