"""Who is admitted to the console, and the headers of each response."""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from aiokafka08._tools.console.guard import Admission, Guard
from aiokafka08._tools.console.server import ServeOptions, access_of
from aiokafka08.console import app
from aiokafka08.errors import IllegalArgumentError
from tests.console.consoles import client_of

TOKEN = "a-token-of-some-length"
COOKIE = "aiokafka08_console_8008"
COOKIE_VALUE = hmac.new(TOKEN.encode(), b"aiokafka08 console", "sha256").hexdigest()
PROXY = [ipaddress.ip_network("10.0.0.0/24")]


def guarded(
    access: Admission, *, peer: str = "127.0.0.1", base: str = "http://127.0.0.1:8008"
) -> httpx.AsyncClient:
    guard = Guard(PlainTextResponse("what it protects"), access)
    transport = httpx.ASGITransport(guard, client=(peer, 4711))
    return httpx.AsyncClient(transport=transport, base_url=base)


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/console.css", "/topics?q=%00"])
async def test_each_response_has_the_headers(path: str) -> None:
    async with client_of(app(bootstrap_servers="127.0.0.1:1")) as client:
        for response in (await client.get(path), await client.post(path)):
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert response.headers["x-frame-options"] == "DENY"
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"
            assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_no_request_changes_anything(method: str) -> None:
    async with guarded(Admission(token=TOKEN)) as client:
        for origin in ("http://127.0.0.1:8008", "https://evil.example"):
            response = await client.request(
                method, "/", headers={"authorization": f"Bearer {TOKEN}", "origin": origin}
            )
            assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8008"}, 200),
        ({"origin": "http://127.0.0.1:8008", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://kafka.example.org", "host": "kafka.example.org"}, 200),
        ({}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"origin": "http://evil.example", "host": "evil.example"}, 421),
        ({"origin": "http://127.0.0.1:8008", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://127.0.0.1:8008", "sec-fetch-site": "none"}, 403),
        ({"origin": "http://127.0.0.1:8008", "authorization": "Bearer wrong"}, 401),
    ],
)
async def test_form_is_taken_from_own_pages_of_admitted_users_only(
    headers: dict[str, str], status: int
) -> None:
    access = Admission(token=TOKEN, hosts={"kafka.example.org"})
    guard = Guard(PlainTextResponse("what it protects"), access, admits_changes=True)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(guard), base_url="http://127.0.0.1:8008"
    ) as client:
        known = {"authorization": f"Bearer {TOKEN}", **headers}
        assert (await client.post("/", headers=known)).status_code == status
        assert (await client.put("/", headers=known)).status_code == (421 if status == 421 else 405)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8008", 200),
        ("[::1]:8008", 200),
        ("localhost:8008", 200),
        ("LOCALHOST", 200),
        ("kafka.example.org", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8008", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
async def test_host_of_another_site_is_refused(host: str, status: int) -> None:
    """A hostile site whose name resolves to this machine gets nothing (DNS rebinding)."""
    async with guarded(Admission(hosts={"kafka.example.org"})) as client:
        response = await client.get("/", headers={"host": host})
        assert response.status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://127.0.0.1:8008"}, 200),
        ({"origin": "https://kafka.example.org", "host": "kafka.example.org"}, 200),
        ({"origin": "https://kafka.example.org", "host": "Kafka.example.org:443"}, 200),
        ({"origin": "http://kafka.example.org", "host": "kafka.example.org:443"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        (
            {
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "iframe",
            },
            403,
        ),
        (
            {
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
            },
            200,
        ),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
    ],
)
async def test_scripts_of_other_sites_are_refused(headers: dict[str, str], status: int) -> None:
    for access in (
        Admission(hosts={"kafka.example.org"}),
        Admission(token=TOKEN, hosts={"kafka.example.org"}),
        Admission(authorize=lambda request: True, hosts=None),
    ):
        # A service that lets every site read everything.
        guard = CORSMiddleware(
            Guard(PlainTextResponse("what it protects"), access),
            allow_origins=["*"],
            allow_credentials=True,
        )
        transport = httpx.ASGITransport(guard, client=("127.0.0.1", 4711))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8008"
        ) as client:
            client.headers["authorization"] = f"Bearer {TOKEN}"
            response = await client.get("/", headers=headers)
        assert response.status_code == status
        assert ("what it protects" in response.text) == (status == 200)


# --- token ----------------------------------------------------------------------------------------


async def test_token_becomes_a_cookie_and_leaves_the_url() -> None:
    async with guarded(Admission(token=TOKEN)) as client:
        assert (await client.get("/topics")).status_code == 401
        first = await client.get(f"/topics?q=a%26b&token={TOKEN}&page=2")
        assert first.status_code == 303
        assert first.headers["location"] == "/topics?q=a%26b&page=2"
        cookie = first.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert TOKEN not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert (await client.get(first.headers["location"])).text == "what it protects"


async def test_cookie_is_for_tls_only_where_there_is_tls() -> None:
    async with guarded(Admission(token=TOKEN), base="https://127.0.0.1:8008") as client:
        assert "Secure" in (await client.get(f"/?token={TOKEN}")).headers["set-cookie"]


async def test_redirect_stays_on_this_site() -> None:
    async with guarded(Admission(token=TOKEN)) as client:
        for path in ("//evil.example/", "/%2Fevil.example", "/%5Cevil.example"):
            response = await client.get(f"http://127.0.0.1:8008{path}?token={TOKEN}")
            location = response.headers["location"]
            assert location.startswith("/")
            assert location[1:2] not in ("/", "\\")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"headers": {"authorization": "Bearer wrong"}},
        {"headers": {"authorization": f"Basic {TOKEN}"}},
        {"headers": {"authorization": "Bearer "}},
        {"params": {"token": "wrong"}},
        {"params": {"token": ""}},
        {"params": {"token": "\u00e4"}},
        {"cookies": {COOKIE: "wrong"}},
        {"cookies": {COOKIE: TOKEN}},
        {"cookies": {"aiokafka08_console_1": COOKIE_VALUE}},
        {"headers": {"cookie": f"{COOKIE}=\x01;;=;{COOKIE}"}},
    ],
)
async def test_missing_and_wrong_tokens_are_refused(
    given: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(Admission(token=TOKEN)) as client:
        client.cookies.update(given.pop("cookies", {}))
        response = await client.get("/", **given)
    assert response.status_code == 401
    assert "what it protects" not in response.text
    assert "set-cookie" not in response.headers
    assert TOKEN not in caplog.text


async def test_wrong_tokens_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(PlainTextResponse("what it protects"), Admission(token=TOKEN))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(guard), base_url="http://127.0.0.1:8008"
    ) as client:
        for _ in range(4):
            await client.get("/?token=wrong")
    text = "a request with a wrong token, from 127.0.0.1"
    assert [record.getMessage() for record in caplog.records] == [text]
    guard.close()
    assert caplog.records[1].getMessage() == f"{text} (3 more times within 60 s)"


async def test_script_gives_the_token_as_a_header() -> None:
    async with guarded(Admission(token=TOKEN)) as client:
        response = await client.get("/", headers={"authorization": f"Bearer {TOKEN}"})
        assert response.text == "what it protects"


# --- proxy ----------------------------------------------------------------------------------------


async def test_header_is_believed_of_the_proxy_only() -> None:
    access = Admission(auth_header="X-Remote-User", trusted_proxies=PROXY)
    user = {"x-remote-user": "ann"}
    async with guarded(access, peer="10.0.0.7") as client:
        assert (await client.get("/", headers=user)).text == "what it protects"
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/", headers={"x-remote-user": " "})).status_code == 401
    async with guarded(access, peer="::ffff:10.0.0.7") as client:
        assert (await client.get("/", headers=user)).text == "what it protects"
    for other in ("10.0.1.7", "127.0.0.1", "::1"):
        async with guarded(access, peer=other) as client:
            assert (await client.get("/", headers=user)).status_code == 403


# --- mounted --------------------------------------------------------------------------------------


async def test_without_authorize_only_loopback_is_served() -> None:
    for peer, status in (("127.0.0.1", 200), ("::1", 200), ("10.0.0.7", 403), ("", 403)):
        async with guarded(Admission(), peer=peer) as client:
            assert (await client.get("/")).status_code == status
    async with guarded(Admission()) as client:
        for header in (
            *("forwarded", "via", "x-real-ip", "true-client-ip", "x-client-ip"),
            *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "X-Forwarded-Prefix"),
            *("cf-ray", "cf-connecting-ip", "x-envoy-external-address", "x-original-url"),
        ):
            assert (await client.get("/", headers={header: "203.0.113.5"})).status_code == 403


async def test_authorize_decides_and_may_be_a_coroutine() -> None:
    def by_header(request: Request) -> bool:
        return request.headers.get("x-user") == "ann"

    async def by_header_later(request: Request) -> bool:
        return by_header(request)

    for authorize in (by_header, by_header_later):
        access = Admission(authorize=authorize, hosts=None)
        async with guarded(access, peer="203.0.113.5", base="https://shop.example") as client:
            assert (await client.get("/", headers={"x-user": "ann"})).text == "what it protects"
            assert (await client.get("/", headers={"x-user": "bob"})).status_code == 403
    with pytest.raises(IllegalArgumentError, match="authorize=True: expected a callable"):
        app(authorize=True)  # type: ignore[arg-type]


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"host": "0.0.0.0"}, "Give --tls-cert and --tls-key, or --insecure"),
        ({"host": "10.0.0.5"}, "Give --tls-cert and --tls-key, or --insecure"),
        ({"host": "kafka.example.org"}, "Give --tls-cert and --tls-key, or --insecure"),
        ({"tls_cert": Path("a.pem")}, "expected both, or none"),
        ({"auth_header": "X-User"}, "anybody could send it"),
        ({"trusted_proxies": ["10.0.0.1"]}, "expected --auth-header too"),
        ({"auth_header": "X-User", "trusted_proxies": ["x"]}, "--trusted-proxy x: "),
        (
            {"auth_header": "X", "trusted_proxies": ["::1"], "token_file": Path("t")},
            "expected one of them",
        ),
    ],
)
def test_unsafe_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        access_of(ServeOptions(**options))


async def test_name_that_is_listened_on_is_served() -> None:
    options = ServeOptions(host="Kafka.example.org", insecure=True)
    async with guarded(access_of(options)) as client:
        for host, status in (("kafka.example.org:8008", 401), ("evil.example:8008", 421)):
            assert (await client.get("/", headers={"host": host})).status_code == status


def test_token_is_new_at_each_start_unless_there_is_a_file(tmp_path: Path) -> None:
    tokens = {access_of(ServeOptions()).token for _ in range(20)}
    assert len(tokens) == 20
    assert all(len(token or "") >= 43 for token in tokens)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert access_of(ServeOptions(token_file=file)).token == TOKEN
    for wrong in ("short", "a token with several words", ""):
        file.write_text(wrong)
        with pytest.raises(IllegalArgumentError, match="at least 16 ASCII characters"):
            access_of(ServeOptions(token_file=file))


def test_other_addresses_need_tls_or_insecure() -> None:
    tls = ServeOptions(host="0.0.0.0", tls_cert=Path("c.pem"), tls_key=Path("k.pem"))
    assert access_of(tls).token
    assert access_of(ServeOptions(host="0.0.0.0", insecure=True)).token
    assert access_of(ServeOptions(host="::1")).token
    proxied = ServeOptions(
        host="10.0.0.5", insecure=True, auth_header="X-User", trusted_proxies=["10.0.0.1"]
    )
    assert access_of(proxied).token is None
