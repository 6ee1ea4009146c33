"""The console's pages that change something: forms, confirmations, and the outcomes of changes.

A posted form redirects to `/changes/ID`, which shows what will happen and where. Posting that page
carries out the change, and redirects to the same page. The page of a reset, `/group/reset`, shows
the plan itself; it offers to carry out the plan only if `reset` is among the allowed kinds.

Invariants: only allowed kinds of changes have routes. A POST needs the token of a form, which is
bound to the session and the user that opened the form; the guard checks the Origin header. The body
of a POST is bounded in size and time. Nothing is changed through GET.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aiokafka08._tools.console.change_drafts import (
    NewMessage,
    configure_draft,
    create_draft,
    delete_draft,
    grow_draft,
    produce_draft,
    reset_draft,
)
from aiokafka08._tools.console.changes import KINDS, Change, Changes, MakeDraft
from aiokafka08._tools.console.cluster_view import TopicRow
from aiokafka08._tools.console.guard import Admission, port_of, viewer_of
from aiokafka08._tools.console.message_text import PageText
from aiokafka08._tools.console.page_frame import PageFrame
from aiokafka08._tools.console.query_table import expect_number
from aiokafka08._tools.doctor.brokers import releases_of
from aiokafka08._tools.group_reset import reset_target
from aiokafka08._tools.records.headers import parse_header
from aiokafka08._tools.topic_words import in_topic_words
from aiokafka08._wording import shorten
from aiokafka08.admin import AIOKafkaAdminClient, PlannedOffset
from aiokafka08.admin.offset_reset import PlanTarget
from aiokafka08.errors import IllegalArgumentError, KafkaError

_BODY_BYTES: Final = 256 * 1024
"""How long a posted form may be."""
_BODY_S: Final = 10.0
"""How long a form may take to arrive."""
_FIELDS: Final = 20
_SHOWN_BYTES: Final = 64 * 1024
"""How much of a key or value a confirmation shows."""

TARGETS: Final = {
    "earliest": "the first message",
    "latest": "the end: only new messages",
    "offset": "this offset",
    "shift": "by this many offsets; back if negative",
    "time": "the first message since this time",
}
"""Where a group can be reset to."""


class ChangePages:
    """The pages that change one cluster, for the allowed kinds of changes.

    Args:
        frame: makes the pages.
        changes: keeps the changes, and carries them out.
        access: names the viewers.
    """

    def __init__(self, frame: PageFrame, changes: Changes, access: Admission) -> None:
        self._frame, self._watch, self._changes = frame, frame.watch, changes
        self._access = access
        self._key = secrets.token_bytes(32)

    @property
    def routes(self) -> list[Route]:
        """The routes of the allowed changes, and of the plan of a reset, which changes nothing."""
        served = [
            (KINDS, "/changes/{change}", self.change),
            (("produce",), "/topics/{topic}/produce", self.produce),
            (("topics",), "/topics/{topic}/change", self.topic),
            (("topics",), "/create-topic", self.create),
        ]
        allowed = set(self._changes.allowed)
        return [Route("/group/reset", self.reset)] + [
            Route(path, endpoint, methods=["GET", "POST"])
            for kinds, path, endpoint in served
            if allowed & set(kinds)
        ]

    # --- the pages --------------------------------------------------------------------------------

    async def change(self, request: Request) -> Response:
        """Show a change, and its outcome; carry it out if the page is posted."""
        form = await self._posted(request) if request.method == "POST" else None
        change = self._changes.find(request.path_params["change"], self._session(request))
        if change is None:
            raise HTTPException(
                404,
                "There is no such change for you: it was shown more than ten minutes ago, or "
                "others have taken its place. Unless it was confirmed before (the console's log "
                "says so), nothing was changed: begin again",
            )
        if form is None:
            return self._shown(request, change)
        name = change.draft.typed_name
        if name is not None and change.state == "waiting" and form.get("typed", "") != name:
            text = f"Nothing was changed: what was typed isn't the topic's name, {name}"
            return self._shown(request, change, IllegalArgumentError(text))
        await self._changes.carry_out(change, viewer_of(request.scope, self._access))
        return _redirect(request, f"/changes/{change.change_id}")

    async def produce(self, request: Request) -> Response:
        """Show the form for a new message of a topic; if posted, make its draft."""
        row, network = self._frame.topic_row(request), self._watch.network

        def make(form: Mapping[str, str]) -> MakeDraft:
            return partial(produce_draft, network=network, message=_message(row.topic, form))

        return await self._ask(request, "produce.html", f"Produce to {row.topic}", make, topic=row)

    async def reset(self, request: Request) -> Response:
        """Show the form for a reset's position, and the plan; another request carries it out."""
        row, query = self._frame.group_row(request.query_params), request.query_params
        context: dict[str, Any] = {"row": row, "draft": None, "change": None, "targets": TARGETS}
        # The members of these groups are known only to ZooKeeper.
        lacks_zookeeper = not self._watch.has_zookeeper and (
            row.store == "zookeeper" or self._has_0_8()
        )
        session, error = None, None
        if "reset" in self._changes.allowed:
            session = self._session(request) or secrets.token_urlsafe(16)
        if not lacks_zookeeper and (wanted := query.get("to", "")):
            try:
                target, topic = _target(wanted, query.get("value", "")), query.get("topic", "")
                make = partial(
                    reset_draft, group=row.group, store=row.store, target=target, topic=topic
                )
                context["draft"], cluster = await self._changes.draft(make)
                context["cluster_text"] = self._changes.cluster_text(cluster)
                if session is not None:
                    context["change"] = self._changes.keep(context["draft"], cluster, session)
            except KafkaError as failed:
                error = failed
        draft, title = context["draft"], f"Reset group {row.group}"
        data = {"plan": [] if draft is None else [_plan_row(one) for one in draft.plan]}
        context |= {"lacks_zookeeper": lacks_zookeeper, "data": data, "error": error}
        return self._form(request, "reset.html", title, session, **context)

    async def create(self, request: Request) -> Response:
        """Show the form for a new topic; if posted, make its draft."""

        def make(form: Mapping[str, str]) -> MakeDraft:
            return partial(
                create_draft,
                name=form.get("name", "").strip(),
                partitions=expect_number("partitions", form),
                replicas=expect_number("replicas", form),
            )

        return await self._ask(request, "create_topic.html", "Create a topic", make)

    async def topic(self, request: Request) -> Response:
        """Show forms for a topic's partitions, settings and deletion; if posted, make a draft."""
        row, releases = self._frame.topic_row(request), await self._releases()
        make, title = partial(_topic_change, row), f"Change topic {row.topic}"
        return await self._ask(
            request, "change_topic.html", title, make, row=row, releases=releases
        )

    # --- the brokers' releases --------------------------------------------------------------------

    def _has_0_8(self) -> bool:
        releases = releases_of(self._frame.view().sample).values()
        return any(release.startswith("0.8") for release in releases)

    async def _releases(self) -> set[str | None]:
        """Return the brokers' exact releases if one is of 0.8; a sample has only "0.8"."""
        if not self._watch.has_zookeeper or not self._has_0_8():
            return set()
        self._watch.check_running()
        async with AIOKafkaAdminClient(**self._watch.options) as admin:
            return set((await admin.broker_releases()).values())

    # --- forms and sessions -----------------------------------------------------------------------

    async def _ask(
        self,
        request: Request,
        template: str,
        title: str,
        make: Callable[[Mapping[str, str]], MakeDraft],
        **context: Any,
    ) -> Response:
        """Return a page with a form; if it is posted, redirect to the confirmation of its draft."""
        form: Mapping[str, str] = {}
        error: KafkaError | None = None
        if request.method == "POST":
            form = await self._posted(request)
            try:
                draft, cluster = await self._changes.draft(make(form))
                change = self._changes.keep(draft, cluster, self._session(request) or "")
                return _redirect(request, f"/changes/{change.change_id}")
            except KafkaError as failed:
                error = failed
        return self._form(request, template, title, form=form, error=error, **context)

    def _shown(self, request: Request, change: Change, error: KafkaError | None = None) -> Response:
        draft, text = change.draft, PageText()
        parts = [(name, text.show(data, "auto", _SHOWN_BYTES)) for name, data in draft.parts]
        context: dict[str, Any] = {"change": change, "draft": draft, "parts": parts}
        context["cluster_text"] = self._changes.cluster_text(change.cluster)
        data = {"state": change.state, "outcome": self._reworded(change.outcome.text)}
        return self._form(request, "change.html", draft.title, data=data, error=error, **context)

    def _reworded(self, text: str) -> str:
        return in_topic_words(self._frame.reword(text))

    def _form(
        self,
        request: Request,
        template: str,
        title: str,
        session: str | None = "",
        *,
        data: Mapping[str, Any] | None = None,
        error: KafkaError | None = None,
        **context: Any,
    ) -> Response:
        """Return a page with forms.

        Args:
            request, template, title, data, context: as for `PageFrame.page`.
            session: the viewer's session; "": that of the request, or a new one; None: the page
                has nothing to post, and needs none.
            error: why a form wasn't accepted; None: there is no error.
        """
        known, message, status = self._session(request), None, 200
        if session == "":
            session = known or secrets.token_urlsafe(16)
        if error is not None:
            message = self._reworded(error.text.removeprefix("--"))
            status = 400 if isinstance(error, IllegalArgumentError) else 409
        context["csrf"] = "" if session is None else self._form_token(request, session)
        data = {**(data or {}), "error": message}
        response = self._frame.page(
            request, template, title, data, status=status, is_live=False, **context
        )
        # With "no-referrer" browsers would post forms with the Origin "null".
        response.headers["Referrer-Policy"] = "same-origin"
        if session is not None and session != known:
            is_secure = request.url.scheme == "https"
            response.set_cookie(
                _cookie(request), session, httponly=True, samesite="strict", secure=is_secure
            )
        return response

    async def _posted(self, request: Request) -> dict[str, str]:
        """Return the fields of a form, after the check of its token."""
        form = await _fields(request)
        session = self._session(request)
        expected = "" if session is None else self._form_token(request, session)
        given = form.pop("csrf", "").encode()
        if not expected or not hmac.compare_digest(given, expected.encode()):
            raise HTTPException(
                403,
                "Nothing was changed: the form isn't of your session with this console, or the "
                "console was started anew. Open the page again",
            )
        return form

    def _session(self, request: Request) -> str | None:
        return request.cookies.get(_cookie(request)) or None

    def _form_token(self, request: Request, session: str) -> str:
        about = f"{viewer_of(request.scope, self._access, with_address=False)}\n{session}"
        return hmac.new(self._key, about.encode(errors="replace"), "sha256").hexdigest()


def _redirect(request: Request, path: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", HTTPStatus.SEE_OTHER)


def _cookie(request: Request) -> str:
    return f"aiokafka08_console_session_{port_of(request.headers.get('host', ''))}"


async def _fields(request: Request) -> dict[str, str]:
    """Read the fields of a body, within limits of size and time; the last of equal names counts."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Expected a form of the console's own pages")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > _BODY_BYTES:
                    raise HTTPException(
                        413,
                        f"The form has more than {_BODY_BYTES:,} bytes. Larger messages are for "
                        "'aiokafka08 produce'",
                    )
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS
        )
    except TimeoutError:
        raise HTTPException(408, f"The form didn't arrive within {_BODY_S:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "The form didn't arrive wholly") from None
    except ValueError:
        raise HTTPException(400, "The form can't be read: expected text in UTF-8") from None
    # Browsers send line breaks as CR LF.
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def _message(topic: str, form: Mapping[str, str]) -> NewMessage:
    lines = [line for line in form.get("headers", "").split("\n") if line.strip()]
    value = None if form.get("null") == "1" else _bytes("value", form)
    if value is None and (lines or form.get("value")):
        raise IllegalArgumentError("value: a null value has no text and no headers")
    return NewMessage(
        topic,
        expect_number("partition", form) if form.get("partition", "").strip() else None,
        _bytes("key", form) if form.get("key") else None,
        value,
        [parse_header(line) for line in lines],
    )


def _bytes(name: str, form: Mapping[str, str]) -> bytes:
    text = form.get(name, "")
    if form.get("as") != "hex":
        return text.encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise IllegalArgumentError(f"{name}={shorten(text)}: expected hexadecimal digits") from None


def _target(wanted: str, value: str) -> PlanTarget:
    if wanted == "time":
        return reset_target("--to-datetime", value)
    if wanted in ("offset", "shift"):
        digits = value.strip()
        is_back = wanted == "shift" and digits.startswith("-")
        number = expect_number("value", {"value": digits[is_back:]}, 2**63)
        option = "--shift-by" if wanted == "shift" else "--to-offset"
        return reset_target(option, -number if is_back else number)
    if wanted not in TARGETS:
        raise IllegalArgumentError(f"to={shorten(wanted)}: expected one of {', '.join(TARGETS)}")
    return reset_target(f"--to-{wanted}", wanted)


def _topic_change(row: TopicRow, form: Mapping[str, str]) -> MakeDraft:
    """Return the function that makes the draft for one of a topic's forms."""
    wanted = form.get("do", "")
    if wanted == "grow":
        return partial(grow_draft, topic=row.topic, partitions=expect_number("partitions", form))
    if wanted == "configure":
        name, value = form.get("name", "").strip(), form.get("value", "").strip()
        if not name:
            raise IllegalArgumentError("name='': expected a setting, such as retention.ms")
        return partial(configure_draft, topic=row.topic, name=name, value=value or None)
    if wanted == "delete":
        return partial(delete_draft, row=row)
    raise IllegalArgumentError(f"do={shorten(wanted)}: expected grow, configure or delete")


def _plan_row(planned: PlannedOffset) -> dict[str, Any]:
    """Return a row of a plan; `by_segment` is true if only a segment's time is known."""
    row = planned._asdict()
    found = row.pop("found")
    return {**row, "by_segment": found is not None and found.timestamp is None}
