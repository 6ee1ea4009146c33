"""`Guard`: admit requests to the console, and keep its pages apart from other sites by headers.

The guard is an ASGI application around the pages. `application` builds it for a mounted console,
`server` for the command.

Invariants: no request reaches a page before `Admission` has admitted it, and each response has the
headers of `_HEADERS`, also a refusal. The token is compared in constant time, and never logged; a
redirect at the first visit removes it from the URL. Without `admits_changes`, methods other than
GET and HEAD are refused; with it, POST is admitted from the console's own pages. No script of
another site reads anything, even if the service that mounts the console allows it by a CORS header.
"""

from __future__ import annotations

import hmac
import inspect
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiokafka08._core.limited_log import LimitedLog, later_in_loop
from aiokafka08._wording import shorten

_log: Final = logging.getLogger("aiokafka08.console")

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Authorize = Callable[[Request], bool | Awaitable[bool]]
"""Returns whether a request may see the console; it may be a coroutine function."""

_REFERRER: Final = "Referrer-Policy"
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_FORWARDED: Final = (
    ("forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip"),
    ("x-forwarded-", "x-original-", "x-envoy-", "cf-"),
)
"""Names and prefixes of headers of proxies. Behind a proxy the peer's address isn't the user's."""
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is admitted: the first of `authorize`, `auth_header` and `token` that is set decides.

    Without any of them, requests from this machine are admitted, unless a proxy has forwarded them.

    Attributes:
        token: the text that visitors have to know.
        auth_header: the header in which a proxy names the user.
        trusted_proxies: the addresses of the proxies whose `auth_header` is believed.
        authorize: called with each request; decides alone.
        hosts: names that a Host header may have, besides addresses and "localhost"; None accepts
            any name (for consoles with `authorize`).
    """

    token: str | None = None
    auth_header: str | None = None
    trusted_proxies: Sequence[IpNetwork] = ()
    authorize: Authorize | None = None
    hosts: Collection[str] | None = ()


class Guard:
    """Admit requests by `Admission`, and set the headers of all responses.

    Args:
        pages: the application to guard.
        access: who is admitted.
        admits_changes: True admits POST from the console's own pages (default False).
    """

    def __init__(self, pages: ASGIApp, access: Admission, *, admits_changes: bool = False) -> None:
        self._pages = pages
        self._access = access
        self._admits_changes = admits_changes
        # The cookie holds a digest of the token: browsers also send it to servers on other ports of
        # this host, which must not see the token.
        key = (access.token or "").encode()
        self._cookie_value = hmac.new(key, b"aiokafka08 console", "sha256").hexdigest()
        self._limited_log = LimitedLog(_log, later_in_loop)

    def close(self) -> None:
        """Log how many wrong tokens were counted and not yet logged."""
        self._limited_log.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an HTTP request; close a WebSocket, and ignore other scopes."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault(_REFERRER, "no-referrer")  # a page with a form has its own
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = await self._refusal(scope)
        answer = self._pages if refusal is None else refusal
        await answer(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope) -> Response | None:
        """Return the response that takes the place of the page; None admits the request."""
        headers, access = Headers(scope=scope), self._access
        host = _host_name(headers.get("host", ""))
        if access.hosts is not None and not _is_known(host, access.hosts):
            return _refused(
                421,
                "The console doesn't serve this host name. Open it by its address, or start it "
                "with --host-name",
            )
        if scope["method"] not in ("GET", "HEAD"):
            if not self._admits_changes:
                text = "The console changes nothing: it has GET only"
                return _refused(405, text, Allow="GET, HEAD")
            if scope["method"] != "POST":
                return _refused(405, "The console has GET and POST only", Allow="GET, HEAD, POST")
            if not _is_of_own_page(headers):
                return _refused(403, "Changes are made from the console's own pages only")
        if _is_of_another_site(headers):
            return _refused(403, "The console can't be read by scripts of other sites")
        if access.authorize is not None:
            allowed = access.authorize(Request(scope))
            if inspect.isawaitable(allowed):
                allowed = await allowed
            return None if allowed is True else _refused(403, "You may not see this console")
        if access.auth_header is not None:
            return self._refusal_behind_proxy(scope, headers)
        if access.token is not None:
            return self._refusal_by_token(scope, headers, access.token)
        if _is_loopback(scope) and not _is_forwarded(headers):
            return None
        return _refused(403, "Without `authorize` the console serves this machine only")

    def _refusal_behind_proxy(self, scope: Scope, headers: Headers) -> Response | None:
        if not _is_from_proxy(scope, self._access):
            return _refused(403, "The console is served by its proxy only")
        if not headers.get(self._access.auth_header or "", "").strip():
            return _refused(401, "The proxy didn't say who you are")
        return None

    def _refusal_by_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        cookie = f"aiokafka08_console_{port_of(headers.get('host', ''))}"
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and _is_equal(given[0], token):
            # The redirect must stay on this host: browsers would read "//host" as another site.
            path = "/" + quote(scope["path"].lstrip("/"))
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            response = RedirectResponse(
                f"{path}?{rest}" if rest else path, status_code=HTTPStatus.SEE_OTHER
            )
            response.set_cookie(
                cookie,
                self._cookie_value,
                httponly=True,
                samesite="strict",
                secure=scope.get("scheme") == "https",
            )
            return response
        if scheme.lower() == "bearer" and _is_equal(bearer.strip(), token):
            return None
        if _is_equal(_cookie(headers, cookie), self._cookie_value):
            return None
        if given:
            peer = _peer(scope)
            self._limited_log.report(peer, f"a request with a wrong token, from {peer}")
        return _refused(
            401,
            "Open the URL that 'aiokafka08 console' has printed: it has the token; with "
            "--token-file, add ?token= and the token of that file. If you have opened it before, "
            "and came by a link of another site, press Enter in the address bar: browsers leave "
            "out the cookie after such a link",
            **{"WWW-Authenticate": "Bearer"},
        )


def viewer_of(scope: Scope, access: Admission, *, with_address: bool = True) -> str:
    """Return who sends a request, such as "'ann' at 10.0.0.7".

    Args:
        scope: the scope of an admitted request.
        access: names the proxies that are trusted to name the user.
        with_address: False returns the name only, "" without one (default True).
    """
    user = ""
    if access.auth_header is not None and _is_from_proxy(scope, access):
        user = Headers(scope=scope).get(access.auth_header, "").strip()
    shown = shorten(user) if user else ""
    if not with_address:
        return shown
    address = _peer(scope) or "an unknown address"
    return f"{shown} at {address}" if shown else str(address)


def _is_from_proxy(scope: Scope, access: Admission) -> bool:
    peer = _peer(scope)
    return peer is not None and any(peer in network for network in access.trusted_proxies)


def _refused(status: int, text: str, **headers: str) -> Response:
    return Response(f"{text}.\n", status, {**headers, "Content-Type": "text/plain; charset=utf-8"})


def _is_forwarded(headers: Headers) -> bool:
    """Return whether a proxy says that it has forwarded the request; not all of them do."""
    names, prefixes = _FORWARDED
    return any(name in names or name.startswith(prefixes) for name in headers)


def _is_of_another_site(headers: Headers) -> bool:
    """Return whether a page of another site sends the request, other than by a link to here.

    Browsers say so in headers. If the service that mounts the console had a CORS header, that page
    could otherwise read the response.
    """
    if headers.get("sec-fetch-site") == "cross-site":
        # A link to the console is a navigation of the whole window.
        dest = headers.get("sec-fetch-dest", "document")
        if headers.get("sec-fetch-mode") != "navigate" or dest != "document":
            return True
    return "origin" in headers and not _has_own_origin(headers)


def _is_of_own_page(headers: Headers) -> bool:
    """Return whether a browser says that a page of the console itself sends a form."""
    is_own = headers.get("sec-fetch-site", "same-origin") == "same-origin"
    return is_own and _has_own_origin(headers)


def _has_own_origin(headers: Headers) -> bool:
    scheme, _, address = headers.get("origin", "").lower().partition("://")
    # A proxy that ends TLS changes the scheme. So the default port is that of the Origin's scheme.
    suffix = f":{_PORTS.get(scheme)}"
    host = headers.get("host", "").lower().removesuffix(suffix)
    return bool(address) and address.removesuffix(suffix) == host


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _cookie(headers: Headers, name: str) -> str:
    for line in headers.getlist("cookie"):
        try:
            cookies = SimpleCookie(line)
        except CookieError:
            continue
        if name in cookies:
            return cookies[name].value
    return ""


def _host_name(host: str) -> str:
    """Return the name or address of a Host header, in lower case, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def port_of(host: str) -> str:
    """Return the port of a Host header; with it, each console of a machine has its own cookie."""
    port = host.rpartition(":")[2]
    return port if port.isascii() and port.isdigit() else "0"


def _is_known(host: str, names: Collection[str]) -> bool:
    """Return whether a Host is expected; a hostile site's name may resolve to this machine."""
    if host == "localhost" or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _peer(scope: Scope) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of the connection's other end; None if it isn't an IP address."""
    try:
        peer = ipaddress.ip_address(scope["client"][0])
    except (KeyError, TypeError, ValueError):
        return None
    mapped = getattr(peer, "ipv4_mapped", None)
    return peer if mapped is None else mapped


def _is_loopback(scope: Scope) -> bool:
    peer = _peer(scope)
    return peer is not None and peer.is_loopback
