"""`console`: serve the web pages of the package `console`."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.declare import Example, command, connection_options
from aiokafka08._tools.cli.main import INTERRUPTED
from aiokafka08._tools.cli.notes import in_options, note
from aiokafka08._tools.cli.settings import Settings
from aiokafka08.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from aiokafka08._tools.console.guard import Admission
    from aiokafka08._tools.console.server import ServeOptions

DEFAULT_PORT: Final = 8008

_FILE: Final = click.Path(path_type=Path)


@command(
    "console",
    examples=[
        Example(
            "Look at a cluster, from this machine",
            "aiokafka08 console -b kafka1:9092 --zookeeper zk1:2181",
            code=INTERRUPTED,
            until_interrupted=True,
        ),
        Example(
            "Look at an embedded cluster whose data moves",
            "aiokafka08 console --demo",
            code=INTERRUPTED,
            until_interrupted=True,
        ),
        Example(
            "Let operators produce messages and reset groups",
            "aiokafka08 console -b kafka1:9092 --zookeeper zk1:2181 --allow produce,reset",
            code=INTERRUPTED,
            until_interrupted=True,
        ),
        Example(
            "Behind a proxy on this machine that knows the users",
            "aiokafka08 console -b kafka1:9092 --auth-header X-Remote-User "
            "--trusted-proxy 127.0.0.1 --host-name kafka.example.org",
            code=INTERRUPTED,
            until_interrupted=True,
        ),
    ],
)
@click.option("--demo", is_flag=True, help="Run an embedded cluster, and show it.")
@click.option(
    "--listen",
    default=f":{DEFAULT_PORT}",
    metavar="[HOST]:PORT",
    help=f"Where to listen, on 127.0.0.1 without HOST (default: 127.0.0.1:{DEFAULT_PORT}).",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=10.0,
    metavar="SECONDS",
    help="Time from one sample of the cluster to the next (default: 10).",
)
@click.option("--title", metavar="TEXT", help="The cluster's name on the pages (default: -b).")
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="TOPIC=FIELD,...",
    help="Hide what messages of a topic, such as orders or *, have there: key, value, or a field "
    "of JSON values, such as card.number; may be repeated.",
)
@click.option(
    "-r",
    "--registry",
    metavar="URL",
    help="A schema registry, such as http://registry:8081, to show keys and values as Avro.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="KIND,...",
    help="Allow changes: produce (messages), reset (groups), topics (create, grow, configure, "
    "delete); may be repeated (default: none).",
)
@click.option(
    "--gateway",
    "gateways",
    multiple=True,
    metavar="HOST:PORT",
    help="Show a gateway that serves its --metrics there; may be repeated.",
)
@click.option(
    "--bridge",
    "bridges",
    multiple=True,
    metavar="HOST:PORT",
    help="Show a bridge that serves its --metrics there; may be repeated.",
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="A name under which the console may be opened, besides addresses and localhost; may be "
    "repeated.",
)
@click.option(
    "--token-file",
    type=_FILE,
    metavar="FILE",
    help="Take the token from there, and don't print it (default: a new one at each start).",
)
@click.option(
    "--auth-header",
    metavar="NAME",
    help="Admit the users that a proxy names in this header, in place of a token; needs "
    "--trusted-proxy.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="NETWORK",
    help="Where that proxy is, such as 127.0.0.1 or 10.0.0.0/24; may be repeated.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The certificate chain, as PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its private key, as PEM.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen on other addresses than this machine's own without TLS.",
)
@functools.partial(connection_options, unless="demo", warns="aiokafka08.monitoring")
def console(
    settings: Settings | None,
    demo: bool,
    listen: str,
    interval: float,
    title: str | None,
    masks: tuple[str, ...],
    registry: str | None,
    allow: tuple[str, ...],
    gateways: tuple[str, ...],
    bridges: tuple[str, ...],
    host_names: tuple[str, ...],
    token_file: Path | None,
    auth_header: str | None,
    trusted_proxies: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
) -> None:
    """Show a cluster in the browser.

    It has pages about brokers, topics, messages, groups and their lag, and is read-only without
    --allow. Open the URL that it prints: the token in it is what admits you. Groups and settings in
    ZooKeeper, and changes of topics, need --zookeeper. With --allow each change is shown before it
    is made, and stderr has a line with who made it. 'The console' in the documentation tells about
    access from other machines.
    """
    from aiokafka08._tools.cli.commands.exporter import parse_listen
    from aiokafka08._tools.cli.connection import run

    _require_extra()
    from aiokafka08._tools.console.changes import allowed_kinds
    from aiokafka08._tools.console.server import ServeOptions, access_of
    from aiokafka08._tools.records.masks import Masks

    host, port = parse_listen(listen)
    options = ServeOptions(
        host=host or "127.0.0.1",
        port=port,
        host_names=host_names,
        token_file=token_file,
        auth_header=auth_header,
        trusted_proxies=trusted_proxies,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
    )
    access = access_of(options)
    shown: dict[str, Any] = {
        "title": title,
        "masks": Masks(masks, "--mask"),
        "registry": registry,
        "allowed": allowed_kinds(allow, "--allow"),
        "gateways": gateways,
        "bridges": bridges,
    }
    if settings is None:
        shown |= {"title": title or "demo", "interval_s": min(interval, 2.0)}
        run(_serve_demo(options, access, shown))
    else:
        from aiokafka08._tools.cli.connection import admin_options

        shown |= {"title": title, "interval_s": interval}
        run(_serve(admin_options(settings), options, access, shown))


def _require_extra() -> None:
    for package in ("starlette", "uvicorn", "jinja2"):
        try:
            __import__(package)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise KafkaConfigurationError(
                f"console: {package} isn't installed. Install it with: "
                "pip install 'aiokafka08[console]'"
            ) from None


async def _serve(
    client: dict[str, Any], options: ServeOptions, access: Admission, shown: Mapping[str, Any]
) -> None:
    from aiokafka08._tools.console.application import make_console
    from aiokafka08._tools.console.server import serve

    def record(text: str) -> None:
        note(f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} {text}")

    console = make_console(client, access, **shown, reword=in_options, record=record)
    await serve(console, options, access, lambda url: note(f"console at {url}"))


async def _serve_demo(options: ServeOptions, access: Admission, shown: Mapping[str, Any]) -> None:
    from aiokafka08._tools.console.demo import demo_cluster

    async with demo_cluster() as servers:
        await _serve({"bootstrap_servers": servers}, options, access, shown)
