"""The console's pages: take a request, pick rows of the view, and return HTML or JSON.

`application` builds them. Each page is rendered by a template of `templates/`, and has the same
rows as JSON for scripts: with `?format=json`, or if the request accepts JSON only. `change_pages`
has the pages that change something.

Invariant: all routes are GET. Only pages of messages wait for brokers, so all other pages are as
fast as always while a broker is slow.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from heapq import nsmallest
from operator import attrgetter, itemgetter
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._tools.console.cluster_view import (
    GroupRow,
    TopicRow,
    rows_by,
    sum_if_known,
    total_of,
)
from aiokafka08._tools.console.message_search import (
    DEFAULT_COUNT,
    LIMIT_S,
    MAX_COUNT,
    SEARCHED_BYTES,
    MessagePage,
    MessageQuery,
    search_messages,
)
from aiokafka08._tools.console.message_text import FORMS, PageText, json_part
from aiokafka08._tools.console.page_frame import PageFrame, wants_json
from aiokafka08._tools.console.query_table import (
    PAGE_ROWS,
    Columns,
    QueryTable,
    expect_number,
    number_of,
)
from aiokafka08._tools.console.sending import (
    EventStream,
    PacedJson,
    PacedResponse,
    fields_of,
    while_connected,
)
from aiokafka08._tools.findings import is_healthy, summary
from aiokafka08._tools.records.avro import AvroReader
from aiokafka08._tools.records.avro_records import AVRO_FORMS, DecodedRecord
from aiokafka08._tools.records.headers import opened
from aiokafka08._tools.records.json_lines import JsonLinesEncoder
from aiokafka08._tools.records.masks import Masks
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08.errors import IllegalArgumentError, KafkaError

_MESSAGE_BYTES: Final = 1024 * 1024
"""How many bytes of a value the page of one message shows."""
_DOWNLOADED: Final = 10_000
"""How many messages a download has at most."""
_DOWNLOADED_BYTES: Final = 16_000_000
_JSON_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of a page's values as JSON, in equal shares by message; keys get half as many."""
_GRAPHS: Final = 8
"""How many topics and groups the page of graphs has."""
_ETA_WINDOW_S: Final = 300.0

_TOPIC_COLUMNS: Final[Columns[TopicRow]] = {
    **{name: attrgetter(name) for name in ("topic", "partitions", "replicas", "messages")},
    "problems": lambda row: (
        row.leaderless,
        row.under_replicated or 0,
        row.under_replicated is None,
    ),
    "rate": attrgetter("messages_per_s"),
    "groups": attrgetter("groups"),
}
_GROUP_COLUMNS: Final[Columns[GroupRow]] = {
    **{name: attrgetter(name) for name in ("group", "store", "state", "members", "lag", "lag_s")},
    "topics": lambda row: len(row.topics),
}
_NEIGHBOUR_COLUMNS: Final[Mapping[str, Columns[Mapping[str, Any]]]] = {
    "gateway": {
        name: itemgetter(name)
        for name in ("client_id", "address", "software", "needs_gateway", "last_seen")
    },
    "bridge": {
        "topic": itemgetter("topic", "partition"),
        **{name: itemgetter(name) for name in ("position", "lag", "lag_s", "stopped", "skipped")},
    },
}


class Pages:
    """The pages about one cluster.

    Args:
        frame: makes the pages; its `watch` takes the samples, and lends a router.
        masks: hides keys and values of messages, or parts of them.
        avro: decodes Avro; None: there is no schema registry (default None).
    """

    def __init__(self, frame: PageFrame, masks: Masks, avro: AvroReader | None = None) -> None:
        self._frame, self._watch, self._masks, self._avro = frame, frame.watch, masks, avro
        if avro is not None:
            frame.templates.globals["forms"] = (*FORMS, *AVRO_FORMS)

    @property
    def routes(self) -> list[BaseRoute]:
        """The pages that show the cluster."""
        return [
            Route("/", self.cluster),
            Route("/topics", self.topics),
            Route("/topics/{topic}", self.topic),
            Route("/topics/{topic}/messages", self.messages),
            Route("/topics/{topic}/messages/{partition}/{offset}", self.message),
            Route("/topics/{topic}/tail", self.tail),
            Route("/topics/{topic}/tail/events", self.tail_events),
            Route("/groups", self.groups),
            Route("/group", self.group),
            Route("/watch", self.graphs),
            Route("/gateway", self.neighbour),
            Route("/bridge", self.neighbour),
        ]

    # --- the pages --------------------------------------------------------------------------------

    async def cluster(self, request: Request) -> Response:
        """Show brokers, the rate of messages, and what the doctor finds."""
        view = self._frame.view()
        topics = view.topics.values()
        data = {
            "topics": sum(not row.internal for row in topics),
            **{
                name: sum_if_known(getattr(row, name) for row in topics)
                for name in ("partitions", "leaderless", "under_replicated")
            },
            "groups": len({group for group, _ in view.groups}),
            "messages_per_s": view.messages_per_s,
            "rate_lacks": view.rate_lacks,
            # The health of a cluster that can't be read isn't known.
            "healthy": None if self._watch.problem() else is_healthy(view.findings),
            "brokers": view.brokers(self._watch.brokers),
            "findings": [
                row | {name: self._frame.reword(row[name]) for name in ("why", "action")}
                for row in (finding.as_row() for finding in view.findings)
            ],
        }
        return self._frame.page(
            request, "cluster.html", "Cluster", data, summary=summary(view.findings)
        )

    async def topics(self, request: Request) -> Response:
        """List topics."""
        query = request.query_params
        rows = [
            row
            for row in self._frame.view().topics.values()
            if (query.get("internal") == "1" or not row.internal)
            and (query.get("problems") != "1" or row.leaderless or row.under_replicated != 0)
        ]
        return self._listed(request, "Topics", rows, _TOPIC_COLUMNS)

    async def topic(self, request: Request) -> Response:
        """Show one topic: partitions, rate, settings, and the groups that read it."""
        view, row = self._frame.view(), self._frame.topic_row(request)
        name = row.topic
        by_group = rows_by(view.groups_of(name), attrgetter("group", "store"))
        readers = [
            {
                "group": key[0],
                "store": key[1],
                **total_of(lags)._asdict(),
                "members": len({one.member for one in lags if one.member is not None}),
                "read_at": view.groups[key].read_at,
            }
            for key, lags in by_group.items()
        ]
        data = {**fields_of(row), "partitions": view.partitions(name), "groups": readers}
        return self._frame.page(request, "topic.html", f"Topic {name}", data, row=row)

    async def groups(self, request: Request) -> Response:
        """List groups, of both stores."""
        is_all = request.query_params.get("lagging") != "1"
        rows = [
            row for row in self._frame.view().groups.values() if is_all or row.lag or row.unknown
        ]
        return self._listed(request, "Groups", rows, _GROUP_COLUMNS)

    async def group(self, request: Request) -> Response:
        """Show one group in one store: its members, and its lag by partition and over time."""
        view, query = self._frame.view(), dict(request.query_params)
        row = self._frame.group_row(query)
        name, stores = row.group, self._frame.stores_of(row.group)
        key = (name, row.store)
        slope = self._watch.histories.lag_per_s(key, view.taken_at, _ETA_WINDOW_S)
        lags, at = view.lags[key], request.url.path
        worst: Sequence[str] = row.topics
        if len(worst) > PAGE_ROWS:
            by_topic, unknown = dict(lags.lag_by_topic()), lags.unknown_topics()
            worst = nsmallest(
                PAGE_ROWS,
                row.topics,
                lambda one: (one in by_topic or one not in unknown, -by_topic.get(one, 0), one),
            )
        table = QueryTable(range(len(lags)), lags.columns, query, at)
        data = {
            **fields_of(row),
            "lag_per_s": slope,
            "caught_up_s": row.lag / -slope if row.lag and slope and slope < 0 else None,
            "member_list": view.members(key),
            "offsets": [one._asdict() for one in lags] if wants_json(request) else (),
        }
        return self._frame.page(
            request,
            "group.html",
            f"Group {name}",
            data,
            row=row,
            stores=stores,
            totals=[(topic, total_of(lags.of_topic(topic))) for topic in worst],
            table=table,
            shown=map(lags.row, table.shown),
        )

    async def messages(self, request: Request) -> ASGIApp:
        """Show messages of a topic."""
        if request.query_params.get("format") == "jsonl":
            asked = self._asked(request, _DOWNLOADED, _DOWNLOADED, _DOWNLOADED_BYTES)
            return self._searched(asked, partial(_download, asked))
        asked = self._asked(request, DEFAULT_COUNT, MAX_COUNT, SEARCHED_BYTES)
        return self._searched(asked, partial(self._messages_page, request, asked))

    def _messages_page(self, request: Request, asked: MessageQuery, found: MessagePage) -> Response:
        data: dict[str, Any] = {
            "topic": asked.topic,
            "scanned": found.scanned,
            "scanned_bytes": found.scanned_bytes,
            "from": found.start,
            "stopped": found.stopped,
            "next_from": found.next_start,
            "notes": [self._frame.reword(note) for note in found.notes],
        }
        if wants_json(request):
            share = _JSON_BYTES // max(len(found.messages), 1)
            data["messages"] = [_json_message(record, share) for record in found.messages]
        return self._frame.page(
            request,
            "messages.html",
            f"Messages of {asked.topic}",
            data,
            is_live=False,
            asked=asked,
            found=found,
            text=PageText(),
            form=_form(request),
        )

    async def tail(self, request: Request) -> Response:
        """Show messages as they are written; the rows come by `tail_events`."""
        row, asked = self._frame.topic_row(request), self._asked(request, 1, 1, 1)
        title, form = f"Live messages of {row.topic}", _form(request)
        return self._frame.page(
            request, "tail.html", title, {}, is_live=False, row=row, asked=asked, form=form
        )

    async def tail_events(self, request: Request) -> ASGIApp:
        """Send the rows of a live view until its viewer leaves."""
        row, asked = self._frame.topic_row(request), self._asked(request, 1, 1, 1)
        form, pick = _form(request), asked.picker(self._masks, asked.filter())
        template = self._frame.templates.get_template("tail_rows.html")
        root = request.scope.get("root_path", "")

        async def events() -> AsyncGenerator[tuple[str, str], None]:
            try:
                periods = self._watch.tail(row.topic, asked.partition, pick)
                async with aclosing(periods):
                    async for period in periods:
                        yield "state", period.state
                        if period.shown:
                            rows = {"shown": period.shown, "text": PageText()}
                            yield "rows", template.render(rows, form=form, root=root)
            except KafkaError as error:
                yield "end", self._frame.reword(error.text)

        return EventStream(events())

    async def message(self, request: Request) -> ASGIApp:
        """Show the message at an offset, or the next one if the offset has none."""
        partition = _path_number(request, "partition", 2**31)
        offset = _path_number(request, "offset", 2**63)
        asked = MessageQuery(
            request.path_params["topic"], partition, str(offset), 1, avro=self._decoder(request)
        )
        return self._searched(asked, partial(self._message_page, request, asked))

    def _message_page(self, request: Request, asked: MessageQuery, found: MessagePage) -> Response:
        if not found.messages:
            where = f"topic {asked.topic!r}, partition {asked.partition}"
            missing = f"{where}: no message at offset {asked.start}"
            if found.stopped is None and not found.notes:
                raise HTTPException(404, f"{missing}: the log ends before it")
            raise HTTPException(503, f"{missing} could be read: {[*found.notes, found.stopped][0]}")
        record = found.messages[0]
        if wants_json(request):
            return PacedJson(_json_message(record, _JSON_BYTES))
        value, headers = opened(record.value)
        form, text = _form(request), PageText()
        return self._frame.page(
            request,
            "message.html",
            f"{record.topic} {record.partition}/{record.offset}",
            {},
            is_live=False,
            record=record,
            offset=int(asked.start),
            key=text.show(record.key, "auto" if form == "json" else form, _MESSAGE_BYTES // 4),
            headers=[
                (name, text.show(data, "auto", 4096)) for name, data in (*record.headers, *headers)
            ],
            value=text.show(value, form, _MESSAGE_BYTES),
            form=form,
        )

    async def graphs(self, request: Request) -> Response:
        """Show graphs of the last day: the cluster, its busiest topics, its most lagging groups."""
        view = self._frame.view()
        own = [row for row in view.topics.values() if not row.internal]
        topics = sorted(own, key=lambda row: -(row.messages_per_s or 0))
        groups = sorted(view.groups.values(), key=lambda row: -(row.lag or 0))
        data = {"topics": topics[:_GRAPHS], "groups": groups[:_GRAPHS]}
        return self._frame.page(request, "watch.html", "Watch", data)

    async def neighbour(self, request: Request) -> Response:
        """Show the gateway or bridge that the URL names, or else the first one of the page's kind.

        A gateway's page has its clients, and how their requests are handled. A bridge's page has
        its rate, the messages left to copy, and whether the cut-over can begin.
        """
        kind = request.url.path.rpartition("/")[2]
        known = {one.base: one for one in self._watch.neighbours if one.kind == kind}
        at = request.query_params.get("at", next(iter(known), ""))
        if (one := known.get(at)) is None:
            raise HTTPException(404, f"No {kind} is named; give its address as --{kind}")
        columns = _NEIGHBOUR_COLUMNS[kind]
        table = QueryTable(one.rows, columns, request.query_params, request.url.path)
        data: dict[str, Any] = {
            "address": one.base,
            "error": one.problem,
            "read_at": one.read_at,
            "health": one.health.strip(),
            "per_s": one.rate.last,
            "rows": table.shown,
        }
        if kind == "bridge":
            data |= {"left": one.total("lag_messages"), "seconds_left": one.seconds_left()}
            data |= {"ready": one.is_ready(), "failures": one.failures()}
            data["verification_equal"] = one.total("verification_equal")
        return self._frame.page(
            request, f"{kind}.html", kind.title(), data, one=one, known=known, table=table
        )

    # --- inside -----------------------------------------------------------------------------------

    def _searched(self, asked: MessageQuery, page: Callable[[MessagePage], Response]) -> ASGIApp:
        """Return a response that searches messages, makes a page of them and sends it.

        It counts as a running search until the page is sent (`watch.search`). A viewer who leaves
        ends it. A thread renders the page, since a large one takes long.
        """

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            async with self._watch.search(LIMIT_S) as router:
                found = await search_messages(
                    router,
                    asked,
                    limit_s=LIMIT_S,
                    unpacking=self._watch.unpacking,
                    masks=self._masks,
                )
                offload = Offload()
                try:
                    response = await offload.run(partial(page, found))
                finally:
                    await offload.stop()
                await response(scope, receive, send)

        async def respond_to_viewer(scope: Scope, receive: Receive, send: Send) -> None:
            await while_connected(respond(scope, receive, send), receive)

        return respond_to_viewer

    def _asked(self, request: Request, default: int, most: int, limit_bytes: int) -> MessageQuery:
        """Return the query in the URL; its count is `default` unless the URL has one."""
        query = request.query_params
        texts = {name: query.get(name, "") for name in ("contains", "key", "field", "header")}
        return MessageQuery(
            request.path_params["topic"],
            expect_number("partition", query) if query.get("partition") else None,
            query.get("from", ""),
            min(expect_number("count", query), most) if query.get("count") else default,
            is_pattern=query.get("regex") == "1",
            most=most,
            limit_bytes=limit_bytes,
            avro=self._decoder(request),
            **texts,
        )

    def _decoder(self, request: Request) -> tuple[AvroReader, Sequence[str]] | None:
        """Return what decodes the Avro that the URL asks for."""
        form = request.query_params.get("as", "")
        if form in AVRO_FORMS and self._avro is None:
            raise IllegalArgumentError(f"as={form!r}: the console has no schema registry")
        return (
            None if self._avro is None or form not in AVRO_FORMS else (self._avro, AVRO_FORMS[form])
        )

    def _listed(
        self, request: Request, title: str, rows: Sequence[Any], columns: Columns[Any]
    ) -> Response:
        table = QueryTable(rows, columns, request.query_params, request.url.path)
        name = title.lower()
        data = {"total": len(table.matching), "page": table.page, name: table.shown}
        return self._frame.page(request, f"{name}.html", title, data, table=table)


def _download(asked: MessageQuery, found: MessagePage) -> Response:
    """Return messages as a file that `aiokafka08 produce --format jsonl` takes."""
    records = reversed(found.messages) if found.newest_first else found.messages
    lines = [_json_line(record) for record in records]
    name = asked.topic if found.next_start is None and not found.stopped else f"{asked.topic}.part"
    return PacedResponse(
        b"".join(lines),
        media_type="application/jsonl",
        headers={"Content-Disposition": f'attachment; filename="{name}.jsonl"'},
    )


def _json_line(record: BytesRecord) -> bytes:
    if not isinstance(record, DecodedRecord):
        return JsonLinesEncoder().encode([record])
    return json.dumps(_json_message(record, sys.maxsize), ensure_ascii=False).encode() + b"\n"


def _json_message(record: BytesRecord, limit: int) -> dict[str, Any]:
    """Return a message with the fields of `aiokafka08 consume --format jsonl`.

    If a key or value is cut to the limit of its size, `key_cut` or `value_cut` is the number of
    bytes left out. `notes` says why Avro couldn't be decoded.
    """
    schemas: Collection[str] = record.schemas if isinstance(record, DecodedRecord) else ()
    notes = record.notes if isinstance(record, DecodedRecord) else []
    key = json_part(record.key, limit // 2, is_json="key" in schemas)
    value = json_part(record.value, limit, is_json="value" in schemas)
    line = JsonLinesEncoder(
        lambda _: key.text, lambda _: value.text, headers=bool(record.headers)
    ).encode([record])
    more = {"key_cut": key.cut, "value_cut": value.cut, "notes": notes}
    fields: dict[str, Any] = json.loads(line)
    return fields | {name: one for name, one in more.items() if one}


def _form(request: Request) -> str:
    """Return how values are shown."""
    form = request.query_params.get("as", "auto")
    return form if form in (*FORMS, *AVRO_FORMS) else "auto"


def _path_number(request: Request, name: str, end: int) -> int:
    """Return a number of the path, below `end`."""
    number = number_of(request.path_params[name], end)
    if number is None:
        raise HTTPException(404, f"There is no such {name}")
    return number
