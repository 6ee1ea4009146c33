"""The console's pages: take a request, pick rows of the view, and return HTML or JSON.

`application` builds them. Each page is rendered by a template of `templates/`, and has the same
rows as JSON for scripts: with `?format=json`, or if the request accepts JSON only.

Invariant: only GET; nothing is awaited but the reading of messages, so a page of the cluster takes
no longer while a broker is slow.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import aiokafka08
from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._core.names import did_you_mean, visible
from aiokafka08._core.net.router import Router
from aiokafka08._core.topic_names import missing_topics_text
from aiokafka08._tools.console.charts import chart, sparkline
from aiokafka08._tools.console.cluster_view import (
    ClusterView,
    GroupRow,
    LagRow,
    TopicRow,
    total_of,
)
from aiokafka08._tools.console.message_search import (
    DEFAULT_COUNT,
    LIMIT_S,
    MAX_COUNT,
    MessagePage,
    MessageQuery,
    search_messages,
)
from aiokafka08._tools.console.message_text import FORMS, PageText, json_part
from aiokafka08._tools.console.numbers import exact_text, local_text, number_text
from aiokafka08._tools.console.query_table import QueryTable, url_of
from aiokafka08._tools.console.sending import PacedHtml, PacedJson, while_connected
from aiokafka08._tools.console.watch import ClusterWatch, NotRunningError, Reword
from aiokafka08._tools.findings import is_healthy, summary
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08._tools.times import show_time
from aiokafka08.bridge.wording import duration_text, size_text
from aiokafka08.embedded_headers import extract
from aiokafka08.errors import (
    EmbeddedHeadersError,
    IllegalArgumentError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

_LISTED_BYTES: Final = 16 * 1024
"""How much of a value the list of messages has, folded."""
_MESSAGE_BYTES: Final = 1024 * 1024
"""How much of a value the page of one message has."""
_JSON_BYTES: Final = 8 * 1024 * 1024
"""How much the keys and values of a page have as JSON; each message has the same share."""
_SPARK_POINTS: Final = 60
_LISTED_GAPS: Final = 5
"""How many of a sample's gaps a page lists; further ones are counted."""
_ETA_WINDOW_S: Final = 300.0
_MAX_TIMER_MS: Final = 2**31 - 1
"""Browsers take a longer interval for none."""
_STALE_INTERVALS: Final = 3
"""After so many intervals without a sample the data counts as stale."""

_TOPIC_COLUMNS: Final[Mapping[str, Callable[[TopicRow], Any]]] = {
    "topic": lambda row: row.topic,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replicas,
    "problems": lambda row: (row.leaderless, row.under_replicated),
    "messages": lambda row: row.messages,
    "rate": lambda row: row.messages_per_s,
    "groups": lambda row: row.groups,
}
_GROUP_COLUMNS: Final[Mapping[str, Callable[[GroupRow], Any]]] = {
    "group": lambda row: row.group,
    "store": lambda row: row.store,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "topics": lambda row: len(row.topics),
    "lag": lambda row: row.lag,
    "lag_s": lambda row: row.lag_s,
}
_LAG_COLUMNS: Final[Mapping[str, Callable[[LagRow], Any]]] = {
    "topic": lambda row: (row.topic, row.partition),
    "committed": lambda row: row.committed,
    "end": lambda row: row.end,
    "lag": lambda row: row.lag,
    "lag_s": lambda row: row.lag_s,
    "member": lambda row: row.member,
}


class Pages:
    """The pages about one cluster.

    Args:
        watch: takes the samples, and lends a router.
        title: the cluster's name on the pages.
        reword: turns errors into words of the place where the options were given.
    """

    def __init__(self, watch: ClusterWatch, title: str, reword: Reword) -> None:
        self._watch, self._title, self._reword = watch, title, reword
        self._templates = Environment(
            loader=PackageLoader("aiokafka08._tools.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "number": number_text,
            "exact": exact_text,
            "visible": visible,
            "size": lambda size: "null" if size < 0 else size_text(size),
            "duration": lambda seconds: "–" if seconds is None else duration_text(seconds),
            "local": local_text,
            "utc": lambda seconds: show_time(round(seconds * 1000)),
        }
        self._templates.globals |= {"url_of_group": _url_of_group}
        static = files("aiokafka08._tools.console") / "static"
        self.application = Starlette(
            routes=[
                Route("/", self.cluster),
                Route("/topics", self.topics),
                Route("/topics/{topic}", self.topic),
                Route("/topics/{topic}/messages", self.messages),
                Route("/topics/{topic}/messages/{partition}/{offset}", self.message),
                Route("/groups", self.groups),
                Route("/group", self.group),
                Mount("/static", StaticFiles(directory=str(static))),
            ],
            exception_handlers={
                HTTPException: self._http_error,
                KafkaError: self._kafka_error,
                _NoViewError: self._no_view,
                NotRunningError: self._no_view,
                Exception: self._internal_error,
            },
        )

    # --- the pages --------------------------------------------------------------------------------

    async def cluster(self, request: Request) -> Response:
        """Show brokers, the rate of messages, and what the doctor finds."""
        view = self._view()
        findings = [self._finding(finding.as_row()) for finding in view.findings]
        topics = view.topics.values()
        totals = {
            "topics": sum(not row.internal for row in topics),
            "partitions": sum(row.partitions for row in topics),
            "leaderless": sum(row.leaderless for row in topics),
            "under_replicated": sum(row.under_replicated for row in topics),
            "groups": len({group for group, _ in view.groups}),
            "messages_per_s": view.messages_per_s,
            "rate_lacks": view.rate_lacks,
        }
        data = {
            **totals,
            # It isn't known of a cluster that can't be read.
            "healthy": None if self._watch.problem() else is_healthy(view.findings),
            "brokers": view.brokers(self._watch.brokers),
            "findings": findings,
        }
        produced = self._watch.histories.produced.points()
        return self._page(
            request,
            "cluster.html",
            "Cluster",
            data,
            summary=summary(view.findings),
            chart=chart(produced, "Messages produced", "messages/s"),
            has_zookeeper=view.sample.has_zookeeper,
        )

    async def topics(self, request: Request) -> Response:
        """List topics."""
        view = self._view()
        query = dict(request.query_params)
        show_internal = query.get("internal") == "1"
        rows = [row for row in view.topics.values() if show_internal or not row.internal]
        problems_only = query.get("problems") == "1"
        if problems_only:
            rows = [row for row in rows if row.leaderless or row.under_replicated]
        table = QueryTable(rows, _TOPIC_COLUMNS, query, "topic", request.url.path)
        sparks = {
            row.topic: sparkline(
                self._watch.histories.topics[row.topic].recent(_SPARK_POINTS),
                f"messages per second of {visible(row.topic)}",
            )
            for row in table.shown
        }
        return self._page(
            request,
            "topics.html",
            "Topics",
            {"total": len(table.matching), "page": table.page, "topics": table.shown},
            table=table,
            sparks=sparks,
            show_internal=show_internal,
            problems_only=problems_only,
        )

    async def topic(self, request: Request) -> Response:
        """Show one topic: partitions, rate, settings, and the groups that read it."""
        view = self._view()
        row = self._topic_row(view, request)
        groups: dict[tuple[str, str], list[LagRow]] = {}
        for lag in view.groups_of(row.topic):
            groups.setdefault((lag.group, lag.store), []).append(lag)
        readers = [
            {
                "group": group,
                "store": store,
                **total_of(lags)._asdict(),
                "members": len({one.member for one in lags if one.member is not None}),
                "read_at": view.groups[group, store].read_at,
            }
            for (group, store), lags in groups.items()
        ]
        points = self._watch.histories.topics[row.topic].points()
        data = {
            **asdict(row),
            "partitions": view.partitions(row.topic),
            "groups": readers,
        }
        return self._page(
            request,
            "topic.html",
            f"Topic {row.topic}",
            data,
            row=row,
            chart=chart(points, "Messages produced", "messages/s"),
        )

    async def groups(self, request: Request) -> Response:
        """List groups, of both stores."""
        view = self._view()
        query = dict(request.query_params)
        lagging_only = query.get("lagging") == "1"
        rows = [row for row in view.groups.values() if not lagging_only or row.lag or row.unknown]
        table = QueryTable(rows, _GROUP_COLUMNS, query, "group", request.url.path)
        histories = self._watch.histories.groups
        sparks = {
            (row.group, row.store): sparkline(
                histories[row.group, row.store].recent(_SPARK_POINTS),
                f"lag of {visible(row.group)}",
            )
            for row in table.shown
        }
        return self._page(
            request,
            "groups.html",
            "Groups",
            {"total": len(table.matching), "page": table.page, "groups": table.shown},
            table=table,
            sparks=sparks,
            lagging_only=lagging_only,
            has_zookeeper=self._watch.has_zookeeper,
        )

    async def group(self, request: Request) -> Response:
        """Show one group in one store: its members, and its lag by partition and over time."""
        view = self._view()
        query = dict(request.query_params)
        name = query.get("name", "")
        stores = [store for group, store in view.groups if group == name]
        store = query.get("store", stores[0] if stores else "kafka")
        row = view.groups.get((name, store))
        if row is None:
            similar = did_you_mean(name, {group for group, _ in view.groups})
            self._raise_if_unread(view, f"group {name!r} in {store}", similar)
            raise HTTPException(404, f"There is no group {name!r} in {store}{similar}")
        key = (name, store)
        histories = self._watch.histories
        slope = histories.lag_per_s(key, view.taken_at, _ETA_WINDOW_S)
        caught_up_s = row.lag / -slope if row.lag and slope is not None and slope < 0 else None
        table = QueryTable(view.lags[key], _LAG_COLUMNS, query, "topic", request.url.path)
        lags: dict[str, list[LagRow]] = {}
        for lag in view.lags[key]:
            lags.setdefault(lag.topic, []).append(lag)
        by_topic = []
        for topic in row.topics:
            points = histories.group_topics.get((*key, topic))
            recent = () if points is None else points.recent(_SPARK_POINTS)
            spark = sparkline(recent, f"lag on {visible(topic)}")
            by_topic.append({"topic": topic, **total_of(lags[topic])._asdict(), "spark": spark})
        data = {
            **asdict(row),
            "lag_per_s": slope,
            "caught_up_s": caught_up_s,
            "member_list": view.members(key),
            "offsets": view.lags[key],
        }
        return self._page(
            request,
            "group.html",
            f"Group {name}",
            data,
            row=row,
            stores=stores,
            by_topic=by_topic,
            table=table,
            chart=chart(histories.groups[key].points(), "Lag", "messages"),
        )

    async def messages(self, request: Request) -> ASGIApp:
        """Show messages of a topic."""
        query = dict(request.query_params)
        partition = query.get("partition", "")
        asked = MessageQuery(
            request.path_params["topic"],
            _number("partition", partition) if partition else None,
            query.get("from", ""),
            min(_number("count", query.get("count") or str(DEFAULT_COUNT)), MAX_COUNT),
            query.get("contains", ""),
            query.get("key", ""),
        )

        async def make(router: Router, offload: Offload) -> Response:
            found = await search_messages(
                router, asked, limit_s=LIMIT_S, unpacking=self._watch.unpacking
            )
            partitions = sorted(router.metadata.snapshot.partitions(asked.topic))
            return await offload.run(
                partial(self._messages_page, request, asked, found, partitions)
            )

        return self._searched(make)

    def _messages_page(
        self, request: Request, asked: MessageQuery, found: MessagePage, partitions: Sequence[int]
    ) -> Response:
        query, path = dict(request.query_params), request.url.path
        form = _form(query)
        data = {
            "topic": asked.topic,
            "scanned": found.scanned,
            "scanned_bytes": found.scanned_bytes,
            "from": found.start,
            "stopped": found.stopped,
            "next_from": found.next_start,
            "notes": [self._reword(note) for note in found.notes],
        }
        if _wants_json(request):
            share = _JSON_BYTES // max(len(found.messages), 1)
            data["messages"] = [_json_message(record, share) for record in found.messages]
            return PacedJson(data)
        text = PageText()
        return self._page(
            request,
            "messages.html",
            f"Messages of {asked.topic}",
            data,
            is_live=False,
            query=asked,
            form=form,
            forms=FORMS,
            partitions=partitions,
            found=found,
            shown=[
                (
                    record,
                    text.show(record.key, _key_form(form), _LISTED_BYTES),
                    text.show(record.value, form, _LISTED_BYTES),
                )
                for record in found.messages
            ],
            presets={
                name: url_of(path, {**query, "from": start})
                for name, start in (
                    ("Newest", None),
                    ("Beginning", "beginning"),
                    ("Last hour", "-1h"),
                    ("Last day", "-1d"),
                )
            },
            # Where nothing could be read, it would lead to the same place again.
            next_link=found.next_start
            and found.scanned
            and url_of(path, {**query, "from": found.next_start}),
        )

    async def message(self, request: Request) -> ASGIApp:
        """Show one message, or the first one behind a gap."""
        topic = request.path_params["topic"]
        partition = _path_number(request, "partition", 2**31)
        offset = _path_number(request, "offset", 2**63)
        asked = MessageQuery(topic, partition, str(offset), 1)

        async def make(router: Router, offload: Offload) -> Response:
            found = await search_messages(
                router, asked, limit_s=LIMIT_S, unpacking=self._watch.unpacking
            )
            if found.messages:
                return await offload.run(
                    partial(self._message_page, request, found.messages[0], offset)
                )
            where = f"topic {topic!r}, partition {partition}: no message at offset {offset}"
            if found.stopped is None and not found.notes:
                raise HTTPException(404, f"{where}: the log ends before it")
            why = found.notes[0] if found.notes else found.stopped
            raise HTTPException(503, f"{where} could be read: {why}")

        return self._searched(make)

    def _message_page(self, request: Request, record: BytesRecord, offset: int) -> Response:
        if _wants_json(request):
            return PacedJson(_json_message(record, _JSON_BYTES))
        form, text = _form(dict(request.query_params)), PageText()
        headers: Sequence[tuple[str, bytes]] = ()
        value = record.value
        if value is not None and value[:1] == b"\xff":
            try:
                value, headers = extract(value)
            except EmbeddedHeadersError:
                pass  # it isn't an envelope, but begins as one
        return self._page(
            request,
            "message.html",
            f"{record.topic} {record.partition}/{record.offset}",
            {},
            is_live=False,
            record=record,
            offset=offset,
            form=form,
            forms=FORMS,
            key=text.show(record.key, _key_form(form), _MESSAGE_BYTES // 4),
            headers=[(name, text.show(data, "auto", _LISTED_BYTES // 4)) for name, data in headers],
            value=text.show(value, form, _MESSAGE_BYTES),
        )

    # --- inside -----------------------------------------------------------------------------------

    def _searched(self, make: Callable[[Router, Offload], Awaitable[Response]]) -> ASGIApp:
        """Return what makes a page, and sends it, in the slot of a search.

        A viewer who leaves ends it. Large pages take long to render: a thread does it.
        """

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            async with self._watch.search(LIMIT_S) as router:
                offload = Offload()
                try:
                    response = await make(router, offload)
                finally:
                    await offload.stop()
                await response(scope, receive, send)

        async def respond_to_viewer(scope: Scope, receive: Receive, send: Send) -> None:
            await while_connected(respond(scope, receive, send), receive)

        return respond_to_viewer

    def _view(self) -> ClusterView:
        view = self._watch.view
        if view is None:
            raise _NoViewError
        return view

    def _topic_row(self, view: ClusterView, request: Request) -> TopicRow:
        name = request.path_params["topic"]
        row = view.topics.get(name)
        if row is None:
            similar = did_you_mean(name, view.topics)
            self._raise_if_unread(view, f"topic {name!r}", similar)
            raise HTTPException(404, f"{missing_topics_text([name])}{similar}")
        return row

    def _raise_if_unread(self, view: ClusterView, what: str, similar: str) -> None:
        """Raise 503 if what the view lacks may be there: the sample has gaps, or is old."""
        problem = self._watch.problem()
        gaps = [*([] if problem is None else [problem]), *view.sample.errors]
        if gaps:
            more = "" if len(gaps) <= _LISTED_GAPS else f"; and {len(gaps) - _LISTED_GAPS} more"
            text = "; ".join(gaps[:_LISTED_GAPS])
            raise HTTPException(
                503, f"{what} couldn't be read now, if it exists{similar}: {text}{more}"
            )

    def _finding(self, row: dict[str, str]) -> dict[str, str]:
        """Return a finding with the advice in words of the place where options are given."""
        return row | {name: self._reword(row[name]) for name in ("why", "action")}

    def _page(
        self,
        request: Request,
        template: str,
        title: str,
        data: Mapping[str, Any],
        *,
        status: int = 200,
        is_live: bool = True,
        **context: Any,
    ) -> Response:
        """Return the page, or its data as JSON with the age of the sample."""
        problem, view = self._watch.problem(), self._watch.view
        age_s = None if view is None else max(time.time() - view.taken_at, 0.0)
        if _wants_json(request):
            about = {
                "cluster": self._title,
                "age_s": age_s,
                "problem": None if problem is None else self._reword(problem),
                "gaps": [] if view is None else [self._reword(gap) for gap in view.sample.errors],
            }
            return PacedJson({**about, **_plain(data)}, status)
        interval_s = self._watch.interval_s
        html = self._templates.get_template(template).render(
            title=visible(title),
            cluster=self._title,
            root=request.scope.get("root_path", ""),
            path=request.url.path,
            url=url_of(request.url.path, dict(request.query_params)),
            json_url=url_of(request.url.path, {**request.query_params, "format": "json"}),
            is_live=is_live and view is not None,
            interval_s=interval_s,
            interval_ms=min(round(interval_s * 1000), _MAX_TIMER_MS),
            view=view,
            age_s=age_s,
            stale_after_s=_STALE_INTERVALS * interval_s,
            problem=None if problem is None else self._reword(problem),
            gaps=[] if view is None else [self._reword(gap) for gap in view.sample.errors],
            hints=[self._reword(hint) for hint in self._watch.hints],
            version=aiokafka08.__version__,
            data=data,
            **context,
        )
        return PacedHtml(html, status)

    def _error(self, request: Request, status: int, text: str) -> Response:
        return self._page(
            request,
            "error.html",
            {404: "Not found", 503: "Not now"}.get(status, "Error"),
            {"error": self._reword(text)},
            status=status,
            is_live=False,
        )

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._error(request, error.status_code, error.detail)

    async def _kafka_error(self, request: Request, error: Exception) -> Response:
        """Return 400 or 404 if the URL is wrong, else 503: the cluster doesn't do it now."""
        assert isinstance(error, KafkaError)
        status = 503
        if isinstance(error, IllegalArgumentError):
            status = 400
        elif isinstance(error, UnknownTopicOrPartitionError | OffsetOutOfRangeError):
            status = 404
        # The positions of messages are parsed as those of `consume --from`.
        return self._error(request, status, error.text.removeprefix("--"))

    async def _internal_error(self, request: Request, error: Exception) -> Response:
        return self._error(request, 500, "The console has a bug: its log has the details")

    async def _no_view(self, request: Request, error: Exception) -> Response:
        """Say what is being read, and load the page again soon, also without a script."""
        if not self._watch.is_running:
            text = (
                "The console isn't running. Where it is mounted, the service's lifespan has to run "
                "it: async with console"
            )
            return self._error(request, 503, text)
        return self._page(
            request,
            "waiting.html",
            "Reading the cluster",
            {},
            status=503,
            is_live=False,
            servers=self._watch.servers,
        )


class _NoViewError(Exception):
    """There is no sample yet."""


def _url_of_group(root: str, group: str, store: str) -> str:
    return url_of(f"{root}/group", {"name": group, "store": store})


def _wants_json(request: Request) -> bool:
    if "format" in request.query_params:
        return request.query_params["format"] == "json"
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with dicts in place of data classes."""

    def plain(value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        return value

    return {name: plain(value) for name, value in data.items()}


def _json_message(record: BytesRecord, limit: int) -> dict[str, Any]:
    """Return a message with the fields of `aiokafka08 consume --format jsonl`.

    If a key or value is cut to the limit of their size, another field has the bytes left out.
    """
    key, value = json_part(record.key, limit // 2), json_part(record.value, limit)
    timestamp = record.timestamp if (record.timestamp or -1) >= 0 else None
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": timestamp,
        "timestamp_type": None if timestamp is None else record.timestamp_type,
        "key": key.value,
        "value": value.value,
        **({"key_cut": key.cut} if key.cut else {}),
        **({"value_cut": value.cut} if value.cut else {}),
    }


def _form(query: Mapping[str, str]) -> str:
    form = query.get("as", "auto")
    return form if form in FORMS else "auto"


def _key_form(form: str) -> str:
    return "auto" if form == "json" else form


def _path_number(request: Request, name: str, end: int) -> int:
    """Return a number of the path, below `end`."""
    text = request.path_params[name]
    if not text.isascii() or not text.isdigit():
        raise HTTPException(404, "Not Found")
    if len(text) > len(str(end)) or int(text) >= end:
        raise HTTPException(404, f"There is no such {name}")
    return int(text)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise IllegalArgumentError(f"{name}={text[:40]!r}: expected a number")
    return int(text)
