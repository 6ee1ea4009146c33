"""`PageFrame`: the common parts of the console's pages: templates, JSON, errors, rows by name.

`pages` and `change_pages` make their pages with it.

Invariant: each page, also that of an error, is HTML or JSON with the age of its data. All values
from a cluster are escaped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

import aiokafka08
from aiokafka08._core.names import did_you_mean, visible
from aiokafka08._tools.console.charts import chart, sparkline
from aiokafka08._tools.console.cluster_view import ClusterView, GroupRow, TopicRow
from aiokafka08._tools.console.message_text import FORMS
from aiokafka08._tools.console.numbers import exact_text, local_text, number_text
from aiokafka08._tools.console.query_table import url_of
from aiokafka08._tools.console.sending import PacedHtml, PacedJson
from aiokafka08._tools.console.watch import ClusterWatch, NotRunningError, Reword
from aiokafka08._tools.records.headers import opened
from aiokafka08._tools.times import show_time
from aiokafka08._wording import missing_topics_text, some_of
from aiokafka08.bridge.wording import duration_text, size_text
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

_log: Final = logging.getLogger("aiokafka08.console")

_LISTED_GAPS: Final = 5
"""How many of a sample's gaps a page lists; further ones are counted."""
_STATUS: Final[Sequence[tuple[type[KafkaError], int]]] = (
    (IllegalArgumentError, 400),
    (UnknownTopicOrPartitionError, 404),
    (OffsetOutOfRangeError, 404),
    (KafkaError, 503),  # the cluster can't serve the request now
)


class _NoViewError(Exception):
    """There is no sample yet."""


_EXPECTED: Final = HTTPException, KafkaError, _NoViewError, NotRunningError


class PageFrame:
    """The frame of the pages about one cluster.

    Args:
        watch: takes the samples.
        title: the cluster's name on the pages.
        reword: rewords the text of an error, such as with the names of command-line options.
        allowed: which kinds of changes may be made.

    Attributes:
        watch, reword, allowed: as given.
        templates: renders templates by name.
    """

    def __init__(
        self, watch: ClusterWatch, title: str, reword: Reword, allowed: Collection[str] = ()
    ) -> None:
        self.watch, self._title, self.reword, self.allowed = watch, title, reword, allowed
        self.templates = Environment(
            loader=PackageLoader("aiokafka08._tools.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            "number": number_text,
            "exact": exact_text,
            "visible": visible,
            "reword": reword,
            "size": lambda size: "null" if size < 0 else size_text(size),
            "duration": lambda seconds: "–" if seconds is None else duration_text(seconds),
            "local": local_text,
            "utc": lambda seconds: show_time(round(seconds * 1000)),
        }
        self.templates.globals |= {
            "url_of": url_of,
            "chart": chart,
            "sparkline": sparkline,
            "forms": FORMS,
            "opened": opened,
            "version": aiokafka08.__version__,
            "watch": watch,
            "allowed": allowed,
        }

    def application(self, routes: Sequence[BaseRoute]) -> Starlette:
        """Return the application that serves these routes, the files and the errors."""
        static = files("aiokafka08._tools.console") / "static"
        return Starlette(
            routes=[*routes, Mount("/static", StaticFiles(directory=str(static)))],
            exception_handlers=dict.fromkeys((*_EXPECTED, Exception), self._failed),
        )

    def view(self) -> ClusterView:
        """Return the view of the last sample, or raise `_NoViewError`, shown as a waiting page."""
        if self.watch.view is None:
            raise _NoViewError
        return self.watch.view

    def topic_row(self, request: Request) -> TopicRow:
        """Return the topic in the path; 404 if there is none, 503 if the sample may lack it."""
        view, name = self.view(), request.path_params["topic"]
        row = view.topics.get(name)
        if row is None:
            similar = did_you_mean(name, view.topics)
            self._raise_if_unread(view, f"topic {name!r}", similar)
            raise HTTPException(404, f"{missing_topics_text([name])}{similar}")
        return row

    def group_row(self, query: Mapping[str, str]) -> GroupRow:
        """Return the group that a query names; raises as `topic_row`.

        Without a store in the query, it is the group in the first store that has it.
        """
        view, name = self.view(), query.get("name", "")
        stores = self.stores_of(name)
        store = query.get("store", stores[0] if stores else "kafka")
        row = view.groups.get((name, store))
        if row is None:
            similar = did_you_mean(name, {group for group, _ in view.groups})
            self._raise_if_unread(view, f"group {name!r} in {store}", similar)
            raise HTTPException(404, f"There is no group {name!r} in {store}{similar}")
        return row

    def stores_of(self, group: str) -> list[str]:
        """Return the stores that have a group."""
        return [store for name, store in self.view().groups if name == group]

    def page(
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
        problem, view = self.watch.problem(), self.watch.view
        about = {
            "cluster": self._title,
            "age_s": None if view is None else max(time.time() - view.taken_at, 0.0),
            "problem": None if problem is None else self.reword(problem),
            "gaps": [] if view is None else [self.reword(gap) for gap in view.sample.errors],
        }
        if wants_json(request):
            return PacedJson({**about, **data}, status)
        html = self.templates.get_template(template).render(
            about,
            title=visible(title),
            root=request.scope.get("root_path", ""),
            path=request.url.path,
            query=dict(request.query_params),
            is_live=is_live and view is not None,
            view=view,
            data=data,
            **context,
        )
        return PacedHtml(html, status)

    def _raise_if_unread(self, view: ClusterView, what: str, similar: str) -> None:
        """Raise 503 if the cluster may have what the view lacks: the sample has gaps, or is old."""
        problem, age_s = self.watch.problem(), time.time() - view.taken_at
        if problem is None and age_s > self.watch.stale_after_s:
            problem = f"the last sample is {duration_text(age_s)} old"
        gaps = [*([] if problem is None else [problem]), *view.sample.errors]
        if gaps:
            text = some_of(gaps, _LISTED_GAPS, "; ")
            raise HTTPException(503, f"{what} couldn't be read now, if it exists{similar}: {text}")

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Show an error; without a sample say what is being read, and load the page again soon."""
        status, text = 500, "The console has a bug: its log has the details"
        if not isinstance(error, _EXPECTED):
            _log.error("internal error at %s", request.url.path, exc_info=error)
        if isinstance(error, _NoViewError | NotRunningError):
            if self.watch.is_running:
                return self.page(
                    request, "waiting.html", "Reading the cluster", {}, status=503, is_live=False
                )
            status = 503
            text = (
                "The console isn't running. Where it is mounted, the service's lifespan has to run "
                "it: async with console"
            )
        elif isinstance(error, HTTPException):
            status, text = error.status_code, error.detail
        elif isinstance(error, KafkaError):
            status = next(code for kind, code in _STATUS if isinstance(error, kind))
            # Positions are parsed as the command `consume` does, so an error about one begins with
            # `--from`.
            text = error.text.removeprefix("--")
        title = {404: "Not found", 503: "Not now"}.get(status, "Error")
        data = {"error": self.reword(text)}
        return self.page(request, "error.html", title, data, status=status, is_live=False)


def wants_json(request: Request) -> bool:
    """Return whether a request asks for a page's data."""
    if "format" in request.query_params:
        return request.query_params["format"] == "json"
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted
