"""The options of a gateway from a file and from flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokafka08._tools.gateway.config import read_settings
from aiokafka08._tools.gateway.option_table import OPTIONS, flag
from aiokafka08._tools.gateway.options import MAX_HELD_BYTES
from aiokafka08.errors import IllegalArgumentError
from tests.support.paths import ROOT

pytestmark = pytest.mark.fast

TEXT = """
to = "kafka:9092"
listen = "10.0.0.5:9092"
allow = ["10.0.0.0/24"]
state = "listeners.json"
isolation = "read_committed"
read_only = true
[topics]
include = ["orders", "clicks-.*"]
exclude = ["clicks-internal"]
[groups]
exclude = ["secret"]
"""


def test_file_has_all_options(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(TEXT)
    settings = read_settings(path, {})
    options, access = settings.options, settings.options.access
    assert options.network.bootstrap == (("kafka", 9092),)
    assert options.listen == ("10.0.0.5", 9092)
    assert options.is_allowed("10.0.0.9")
    assert options.is_read_committed
    assert access.is_read_only
    assert settings.state == tmp_path / "listeners.json"
    assert settings.log_level == "info"
    topics = [name for name in ("orders", "order", "clicks-1", "clicks-internal") if
              access.accepts("topic", name)]  # fmt: skip
    assert topics == ["orders", "clicks-1"]
    assert access.accepts("group", "any")
    assert not access.accepts("group", "secret")


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(TEXT)
    given = {"listen": "127.0.0.1:7", "state": "here.json", "topics.include": ("t",), "open": False}
    settings = read_settings(path, given)
    assert settings.options.listen == ("127.0.0.1", 7)
    assert settings.state == Path("here.json")
    assert settings.options.access.accepts("topic", "t")
    assert not settings.options.access.accepts("topic", "orders")


def test_listener_has_the_options_of_the_first_one_unless_it_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    own = 'listen = "10.0.0.5:9192"\ntarget_config = "billing.properties"\nread_only = false'
    path.write_text(
        f'peers = ["g:1"]\n{TEXT}[listeners.billing]\n{own}\ntopics.include = ["bills"]\n'
    )
    settings = read_settings(path, {"isolation": "read_uncommitted", "workers": 2})
    first, billing = settings.listeners
    assert (first.name, billing.name) == ("", "billing")
    assert billing.listen == ("10.0.0.5", 9192)
    assert (first.target_config, billing.target_config) == (None, tmp_path / "billing.properties")
    assert (first.access.is_read_only, billing.access.is_read_only) == (True, False)
    assert billing.access.accepts("topic", "bills")
    assert not billing.access.accepts("topic", "orders")
    assert not billing.access.accepts("group", "secret")
    assert billing.is_allowed("10.0.0.9")
    assert not billing.is_read_committed
    assert (len(first.peers), billing.peers) == (1, ())
    assert billing.max_held_bytes == MAX_HELD_BYTES // 4
    path.write_text(f'{TEXT}[listeners.all]\nlisten = "10.0.0.5:1"\nopen = true\n')
    assert read_settings(path, {}).listeners[1].is_allowed("8.8.8.8")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("read_only = true", "listeners.billing.listen: missing"),
        ("listen = '127.0.0.1:9092'", "listeners.billing.listen: another listener has this port"),
        ("listen = 'x'", "listeners.billing.listen='x': expected ADDRESS:PORT"),
        ("listen = '127.0.0.1:1'\nmetrics = ':1'", "listeners.billing: metrics=…: unknown key"),
        (
            "listen = '127.0.0.1:1'\nobserve = true\nread_only = true",
            "billing.observe and read_only",
        ),
    ],
)
def test_error_names_the_listener(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(f"to = 'kafka:9092'\n[listeners.billing]\n{text}\n")
    with pytest.raises(IllegalArgumentError, match=re.escape(error)):
        read_settings(path, {})
    path.write_text("to = 'kafka:9092'\nlisteners = 1\n")
    with pytest.raises(IllegalArgumentError, match=r"gateway\.toml: listeners: expected sections"):
        read_settings(path, {})


def test_everything_is_allowed_by_default() -> None:
    access = read_settings(None, {"to": "kafka:9092"}).options.access
    assert (access.topics, access.groups, access.is_read_only) == (None, None, False)


def test_error_names_where_the_option_is(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text("to = 'kafka:9092'\nallow = ['10.0.0.1/8']\n")
    with pytest.raises(IllegalArgumentError, match=r"gateway\.toml: allow='10\.0\.0\.1/8': "):
        read_settings(path, {})
    with pytest.raises(IllegalArgumentError, match=r"--allow 10\.0\.0\.2/8: "):
        read_settings(path, {"allow": ("10.0.0.2/8",)})


def test_guide_has_each_option() -> None:
    text = (ROOT / "docs/guides/gateway.md").read_text()
    for option in OPTIONS:
        assert f"`{option.key}`" in text
        assert f"`{flag(option.key)}`" in text
