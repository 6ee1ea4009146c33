"""`app`: the console as an ASGI application, to be served or mounted.

`server` serves it for the command `console`. `Console` owns the `ClusterWatch`, the pages and their
guard, and the changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any, Final, Self

from starlette.types import Receive, Scope, Send

from aiokafka08._tools.console.change_pages import ChangePages
from aiokafka08._tools.console.changes import Changes, allowed_kinds
from aiokafka08._tools.console.guard import Admission, Authorize, Guard
from aiokafka08._tools.console.message_search import NO_MASKS
from aiokafka08._tools.console.neighbours import Neighbour
from aiokafka08._tools.console.page_frame import PageFrame
from aiokafka08._tools.console.pages import Pages
from aiokafka08._tools.console.watch import ClusterWatch, Reword
from aiokafka08._tools.reading.positions import in_positions
from aiokafka08._tools.records.avro import AvroReader
from aiokafka08._tools.records.masks import Masks
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import IllegalArgumentError

_log: Final = logging.getLogger("aiokafka08.console")


class Console:
    """The console of one cluster; `app()` makes one.

    It is an ASGI application. If it is served by itself, it runs from the server's start to its
    end. If it is mounted, the service that mounts it runs it with `async with console`.
    """

    def __init__(self, watch: ClusterWatch, changes: Changes, guard: Guard) -> None:
        self._watch, self._changes, self._guard = watch, changes, guard

    async def __aenter__(self) -> Self:
        self._watch.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._guard(scope, receive, send)

    async def _stop(self) -> None:
        self._guard.close()
        await self._changes.stop()
        await self._watch.stop()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._watch.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def app(
    *,
    authorize: Authorize | None = None,
    hosts: Collection[str] = (),
    title: str | None = None,
    interval_s: float = 10.0,
    mask: Sequence[str] = (),
    registry: str | None = None,
    gateways: Sequence[str] = (),
    bridges: Sequence[str] = (),
    allow: Sequence[str] = (),
    **options: Any,
) -> Console:
    """Return the console of a cluster, as an ASGI application; read-only without `allow`.

    Args:
        authorize: called with each request (`starlette.requests.Request`), returns True to admit
            it; it may be a coroutine function. The method of a change is POST. None: only
            requests from this machine without a proxy's header are admitted. A proxy on this
            machine that adds no header looks like a user, so give `authorize` if the console is
            behind a proxy (default None).
        hosts: without `authorize`, the host names under which the console may be opened, besides
            addresses and "localhost" (default ()).
        title: the cluster's name on the pages; None: the addresses (default None).
        interval_s: seconds from one sample of the cluster to the next (default 10).
        mask: the parts of messages to hide: each names a topic, or a pattern with "*", and "key",
            "value", or fields of JSON values, such as "orders=key,card.number" (default ()).
        registry: the URL of a schema registry, with which keys and values can be shown as Avro;
            needs the extra `avro` (default None).
        gateways, bridges: the addresses of the metrics of gateways and bridges, such as
            "gateway1:9094": they get pages (default ()).
        allow: which changes may be made: "produce" (messages), "reset" (groups' offsets), "topics"
            (create, grow, configure and delete them). Each is logged as a warning, by the logger
            "aiokafka08.console" (default ()).
        **options: arguments of `AIOKafkaAdminClient`, such as `bootstrap_servers` and
            `zookeeper_connect`.

    Raises:
        IllegalArgumentError, KafkaConfigurationError, UnsupportedVersionError: an option has a
            value that isn't supported.
    """
    if authorize is not None and not callable(authorize):
        raise IllegalArgumentError(f"authorize={authorize!r}: expected a callable or None")
    names = None if authorize is not None else {name.lower() for name in hosts}
    return make_console(
        options,
        Admission(authorize=authorize, hosts=names),
        title=title,
        interval_s=interval_s,
        masks=Masks(mask),
        registry=registry,
        gateways=gateways,
        bridges=bridges,
        allowed=allowed_kinds(allow),
    )


def make_console(
    options: dict[str, Any],
    access: Admission,
    *,
    title: str | None,
    interval_s: float,
    masks: Masks = NO_MASKS,
    registry: str | None = None,
    gateways: Sequence[str] = (),
    bridges: Sequence[str] = (),
    allowed: Sequence[str] = (),
    reword: Reword = in_positions,
    record: Callable[[str], object] = _log.warning,
) -> Console:
    """Return a console with any `Admission`; the arguments are otherwise those of `app`.

    Args:
        options: the arguments of `AIOKafkaAdminClient`.
        access: decides which requests are admitted.
        title: the cluster's name; None: the addresses.
        interval_s: seconds from one sample to the next.
        masks: hides parts of messages.
        registry, gateways, bridges: as for `app`.
        allowed: the kinds of changes that may be made (`allowed_kinds`).
        reword: rewords the text of an error, such as with the names of command-line options.
        record: called with a text before and after each change: who makes it, and the outcome.
    """
    if interval_s < 1:
        raise IllegalArgumentError(f"interval_s={interval_s!r}: expected a number >= 1")
    AIOKafkaAdminClient(**options)  # a wrong option is an error now, not at the first sample
    neighbours = [
        *(Neighbour("gateway", url) for url in gateways),
        *(Neighbour("bridge", url) for url in bridges),
    ]
    watch = ClusterWatch(options, float(interval_s), neighbours)
    changes = Changes(watch, allowed, record)
    avro = None if registry is None else AvroReader(registry)
    frame = PageFrame(watch, title or watch.servers, reword, changes.allowed)
    pages, change_pages = Pages(frame, masks, avro), ChangePages(frame, changes, access)
    served = frame.application([*pages.routes, *change_pages.routes])
    return Console(watch, changes, Guard(served, access, admits_changes=bool(changes.allowed)))
