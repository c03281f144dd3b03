"""Changes by POST: who may, what they do, and what is logged."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from quotas.entities import Entity
from quotas.kinds import QuotaKind
from tests.harness.polling import until
from tests.proxy.page.serving import BEARER, TOKEN, serving
from tests.proxy.sabotage import Sabotage

pytestmark = pytest.mark.asyncio

LIMIT = {"user": "greedy", "client_id": "app", "kind": "producer_byte_rate", "limit": "1MiB", "for": "1h"}
FORMS = {"/limits": LIMIT, "/connections/close": {"user": "greedy"}, "/mode": {"mode": "shadow"}}
HTML = {"Accept": "text/html,*/*"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def log_in(client: aiohttp.ClientSession, **headers: str) -> aiohttp.ClientResponse:
    said = {"Origin": str(client._base_url).rstrip("/")} | headers
    return await client.post("/login", data={"token": TOKEN}, headers=said, allow_redirects=False)


async def test_a_temporary_limit_is_set_and_told_with_who_and_ends(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        async with client.post("/limits", data=LIMIT, headers=BEARER) as answer:
            [said] = (await answer.json())["limits"]
        assert (said["rule"], said["limit"], said["who"]) == ("user=greedy, client-id=app", 1048576, "admin token")
        assert served.policy.limits == {Entity("greedy", "app"): {QuotaKind.PRODUCER_BYTE_RATE: 1048576}}
        [(altered, by)] = served.told
        assert (altered.old, altered.new, by.who, by.peer) == (None, 1048576, "admin token", "127.0.0.1")
        served.now_ms += 3_600_000
        await served.temporary.end_overdue()
        async with client.get("/limits") as answer:
            assert await answer.json() == {"limits": []}
        assert served.told[-1][1].who == "its end"


async def test_temporary_limit_set_for_0s_is_removed_early(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        for minutes, left in (("5m", 1), ("0s", 0)):
            async with client.post("/limits", data=LIMIT | {"for": minutes}, headers=BEARER) as answer:
                assert len((await answer.json())["limits"]) == left
        assert served.policy.limits == {}
        async with client.post("/limits", data=LIMIT | {"for": "0s"}, headers=BEARER) as answer:
            assert answer.status == 404


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"for": "1"}, "for: "), ({"for": "169h"}, "lasts at most 168h"), ({"kind": ""}, "kind: "),
        ({"kind": "connection_creation_rate", "limit": "5"}, "connection_creation_rate: is no quota of user=greedy"),
        ({"limit": "much"}, "limit: "), ({"limit": "0"}, "producer_byte_rate"),
        ({"user": "", "client_id": ""}, "entity"),
    ],
)  # fmt: skip
async def test_invalid_temporary_limit_is_refused_with_its_field(
    token_file: Path, changed: dict[str, str], said: str
) -> None:
    async with serving(token_file) as (served, client):
        async with client.post("/limits", data=LIMIT | changed, headers=BEARER) as answer:
            assert answer.status == 400
            assert said in await answer.text()
        assert served.told == []


async def test_connections_are_closed_and_that_is_logged(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        with capture_logs() as logs:
            async with client.post("/connections/close", data={"user": "greedy"}, headers=BEARER) as answer:
                assert await answer.json() == {"closed": 12}
        assert served.closed == [("greedy", None, None)]
        [line] = logs
        assert (line["connections"], line["of"], line["who"]) == (12, {"user": "greedy"}, "admin token")
        async with client.post("/connections/close", data={"client_id": "app"}, headers=BEARER) as answer:
            assert answer.status == 400
        assert len(served.closed) == 1


@pytest.mark.parametrize("path", FORMS)
async def test_forms_without_valid_token_or_origin_change_nothing(token_file: Path, path: str) -> None:
    async with serving(token_file) as (served, client):
        await log_in(client)
        for headers, status in (
            ({"Authorization": "Bearer wrong", "Origin": served.url}, 401),
            ({}, 403),  # a cookie that came without a word about the page that sent it
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Origin": served.url}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({**BEARER, "Origin": "http://evil.example"}, 403),
            ({**BEARER, "Host": "evil.example"}, 403),
        ):
            async with client.post(path, data=FORMS[path], headers=headers) as answer:
                assert answer.status == status, headers
        client.cookie_jar.clear()
        for cookie in ("", "9999999999.", "9999999999.00", "9\udcff.\udcff", TOKEN):
            sent = {"Origin": served.url, "Cookie": f"sluice_login={cookie}"}
            async with client.post(path, data=FORMS[path], headers=sent) as answer:
                assert answer.status == 401, cookie
        async with client.get(path, headers=BEARER) as answer:
            assert answer.status in (200, 405)
        assert (served.told, served.closed, served.switch.mode) == ([], [], "enforce")


@pytest.mark.parametrize("path", FORMS)
async def test_page_without_configured_token_is_read_only_with_hint(path: str) -> None:
    async with serving() as (_, client):
        async with client.post(path, data=FORMS[path], headers=BEARER) as answer:
            assert answer.status == 403
            assert "set admin.token_file" in await answer.text()
        async with client.get("/login") as answer:
            assert "admin.token_file" in await answer.text()
        async with client.get("/") as answer:
            assert "Read-only" in await answer.text()


@pytest.mark.parametrize("path", FORMS)
async def test_form_after_login_applies_change_and_redirects_back(token_file: Path, path: str) -> None:
    async with serving(token_file) as (served, client):
        await log_in(client)
        referer = f"{served.url}//evil.example/client?user=greedy"
        headers = {**HTML, "Origin": served.url, "Referer": referer}
        async with client.post(path, data=FORMS[path], headers=headers, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/evil.example/client?user=greedy")
        assert served.told or served.closed or served.switch.mode == "shadow"
        async with client.post(path, data={"limit": "<b>"}, headers=headers) as answer:
            assert answer.status == 400
            assert answer.content_type == "text/html"
            assert "Not done" in await answer.text()
        write(token_file, "another token of 24 bytes")  # ends all logins
        async with client.post(path, data=FORMS[path], headers=headers) as answer:
            assert answer.status == 401


async def test_the_cookie_is_for_this_page_alone_and_does_not_have_the_token(token_file: Path) -> None:
    async with serving(token_file) as (_, client):
        for headers, is_secure in (({}, False), ({"X-Forwarded-Proto": "https"}, True)):
            answer = await log_in(client, **headers)
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert ("Secure" in cookie) is is_secure
            assert TOKEN not in cookie
            client.cookie_jar.clear()


async def test_a_login_without_the_token_or_from_elsewhere_is_refused_and_logged(token_file: Path) -> None:
    async with serving(token_file) as (_, client):
        with capture_logs() as logs:
            async with client.post("/login", data={"token": "wrong"}) as answer:
                assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
            assert (await log_in(client, Origin="http://evil.example")).status == 403
        assert [line["event"] for line in logs] == ["login refused"] * 2
        assert "wrong" not in str(logs)


async def test_after_logging_out_nothing_can_be_changed_with_the_same_cookie(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        cookie = (await log_in(client)).cookies["sluice_login"].value
        async with client.get("/quotas") as answer:
            assert "Log out" in await answer.text()
        await client.post("/logout")
        for headers in ({}, {"Cookie": f"sluice_login={cookie}"}):
            sent = {"Origin": served.url, **headers}
            async with client.post("/mode", data={"mode": "off"}, headers=sent) as answer:
                assert answer.status == 401


async def test_login_with_many_wrong_tokens_is_slowed_and_counted(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        for status in (*[401] * 5, 429):
            async with client.post("/login", data={"token": "wrong"}) as answer:
                assert answer.status == status
        assert answer.headers["Retry-After"] == "1"
        assert (await log_in(client)).status == 429
        assert served.access.tokens == {"accepted": 0, "wrong": 5, "slowed": 2}


async def test_a_large_form_is_not_read(token_file: Path) -> None:
    async with serving(token_file) as (_, client):
        async with client.post("/limits", data={"user": "x" * 10_000}, headers=BEARER) as answer:
            assert answer.status == 413
        async with client.post("/limits", data=[("user", "x")] * 100, headers=BEARER) as answer:
            assert answer.status == 400


async def test_fault_in_a_change_is_answered_and_noted(token_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(token_file) as (served, client):
        with capture_logs():
            sabotage = Sabotage(monkeypatch, "make a change")
            for status in (500, 200):
                async with client.post("/connections/close", data={"user": "greedy"}, headers=BEARER) as answer:
                    assert answer.status == status
        assert sabotage.counted("make a change") == 1
        assert len(served.closed) == 1


async def test_change_goes_to_its_end_when_its_asker_has_gone(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        go_on = asyncio.Event()
        served.wait_before_closing = go_on.wait
        asking = asyncio.create_task(client.post("/connections/close", data={"user": "greedy"}, headers=BEARER))
        await until(lambda: served.began_to_close)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not served.server._work._by_network)
        go_on.set()
        await until(lambda: served.closed)


async def test_change_is_made_by_all_instances_and_those_that_failed_are_named(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        served.group.errors = {"b": None, "c": "does not answer within 2 s"}
        async with client.post("/limits", data=LIMIT, headers=BEARER) as answer:
            said = await answer.json()
        assert said["instances"] == [
            {"instance": "b", "error": None},
            {"instance": "c", "error": "does not answer within 2 s"},
        ]
        assert served.group.told == [("limit", LIMIT, "admin token", "127.0.0.1")]
        async with client.post("/limits", data=LIMIT, headers=BEARER | HTML) as answer:
            assert "Not at c: does not answer within 2 s" in await answer.text()
        for path in ("/limits", "/connections/close"):
            async with client.post(path, data={"for": "wrong"}, headers=BEARER) as answer:
                assert answer.status == 400
        assert len(served.group.told) == 2, "what is refused here is not told"
        async with client.post("/limits", data=LIMIT | {"for": "0s", "user": "x"}, headers=BEARER) as answer:
            assert (answer.status, (await answer.json())["ended"]) == (200, False)
