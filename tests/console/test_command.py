"""`aiokafka08 console` as a process: what it prints, serves and refuses, and how it ends."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from aiokafka08._tools.cli.main import INTERRUPTED, TERMINATED
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, cli, command_line
from tests.console.consoles import change_of, commit, fields_of, is_ready
from tests.support.environments import as_users
from tests.support.processes import rest_of_output
from tests.support.waiting import eventually

__all__ = ["cli"]  # the fixture

NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield the process, and the URL that it prints."""
    process = subprocess.Popen(
        command_line("console", *arguments), stderr=subprocess.PIPE, text=True, env=as_users()
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"aiokafka08: console at (http://127\.0\.0\.1:\d+/\S*)\n", line)
        assert found, line
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def fetch(url: str, **headers: str) -> str:
    with NO_PROXY.open(urllib.request.Request(url, headers=headers), timeout=20) as response:
        text: str = response.read().decode()
    return text


def _topics(base: str, token: str) -> str:
    """Return the topics; the error's text before the first sample."""
    try:
        return fetch(f"{base}/topics?format=json", Authorization=f"Bearer {token}")
    except urllib.error.HTTPError as error:
        with error:
            return str(error)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_is_served_until_a_signal(number: signal.Signals) -> None:
    with running("--demo", "--listen", ":0") as (process, url):
        base, token = url.split("/?token=")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetch(base)
        deadline = time.monotonic() + 40
        while '"clicks"' not in _topics(base, token):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.send_signal(number)
        _, rest = rest_of_output(process, 30)
    assert token not in rest
    assert "Traceback" not in rest
    assert process.returncode == (INTERRUPTED if number is signal.SIGINT else TERMINATED)


@pytest.mark.timeout(120)
def test_stderr_has_a_line_with_who_changes_what() -> None:
    async def reset(base: str, token: str) -> None:
        async with httpx.AsyncClient(base_url=base) as client:
            client.headers["authorization"] = f"Bearer {token}"
            await eventually(lambda: is_ready(client))
            page = await client.get("/group/reset", params={"name": "billing", "to": "latest"})
            data, own = {"csrf": fields_of(page.text)["csrf"]}, {"origin": base}
            await client.post(change_of(page.text), data=data, headers=own)

    with EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"tea"] * 9)
        asyncio.run(commit(cluster, 4))
        at = ("-b", cluster.bootstrap_servers, "--listen", ":0", "--allow", "reset")
        with running(*at) as (process, url):
            base, token = url.split("/?token=")
            asyncio.run(reset(base, token))
            process.send_signal(signal.SIGTERM)
            _, rest = rest_of_output(process, 30)
    what = "127.0.0.1: reset group 'billing' in kafka: orders/0 4 → 9"
    begin, end = rest.splitlines()
    assert re.fullmatch(rf"aiokafka08: [-0-9]+ [:0-9]+[+-]\d+ {what}, on brokers 0 at .*", begin)
    assert end.endswith(f"{what}: done: 1 offset committed")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--listen", "0.0.0.0:0"), "Give --tls-cert and --tls-key, or --insecure"),
        (("--listen", "8008"), "expected [HOST]:PORT"),
        (("--tls-cert", "a.pem"), "expected both, or none"),
        (("--token-file", "/nonexistent"), "/nonexistent"),
        (("--listen", ":0", "--tls-cert", "/no.pem", "--tls-key", "/no.pem"), "No such file"),
        (("--interval", "0"), "--interval"),
        (
            ("--allow", "produce,delete"),
            "--allow='delete': expected some of produce, reset, topics",
        ),
        (("--mask", "orders"), "--mask='orders': expected TOPIC=FIELD"),
        (("--registry", "kafka1:8081"), "schema registry 'kafka1:8081': expected a URL such as"),
    ],
)
def test_mistakes_are_one_line(cli: RunCommand, options: tuple[str, ...], text: str) -> None:
    done = cli("console", "-b", "127.0.0.1:1", *options)
    assert done.code in (1, 2)
    assert text in done.err
    assert "Traceback" not in done.err


def test_demo_and_a_cluster_are_one_of_them(cli: RunCommand) -> None:
    done = cli("console", "--demo", "-b", "127.0.0.1:1")
    assert (done.code, "expected one of them" in done.err) == (2, True)
    done = cli("console")
    assert done.code == 2
    assert "-b HOST:PORT" in done.err


def test_port_in_use_is_named(cli: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length")
    with running("-b", "127.0.0.1:1", "--listen", ":0", "--token-file", str(file)) as (_, url):
        # The token of a file isn't printed: a service's journal keeps what is.
        assert url.endswith("/")
        at = url.split("/")[2]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetch(url)
        with pytest.raises(urllib.error.HTTPError, match="503"):  # there is no cluster
            fetch(url, Authorization="Bearer a-token-of-some-length")
        done = cli("console", "-b", "127.0.0.1:1", "--listen", at)
        assert done.code == 1
        assert "choose another --listen" in done.err
