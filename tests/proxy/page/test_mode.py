"""Who may change the mode over the admin port, and who may not."""

import json
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.proxy.page.serving import serving

pytestmark = pytest.mark.asyncio

TOKEN = {"Authorization": "Bearer 0123456789abcdef"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    return path


def replace(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink()
    else:
        file.write_text(text)


async def test_the_mode_is_told_to_everybody(token_file: Path) -> None:
    async with serving(token_file) as (_, client), client.get("/mode") as answer:
        assert (answer.status, await answer.json()) == (200, {"mode": "enforce", "configured": "enforce"})


async def test_mode_request_with_token_changes_mode_and_is_logged(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        with capture_logs() as logs:
            async with client.post("/mode", data="shadow\n", headers=TOKEN) as answer:
                assert answer.status == 200
                said = {"mode": "shadow", "before": "enforce", "configured": "enforce"}
                assert json.loads(await answer.text()) == said
        (line,) = logs
        assert (line["old"], line["new"], line["who"]) == ("enforce", "shadow", "admin token")
        assert line["source"] == "127.0.0.1"
        assert served.switch.mode == "shadow"


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        ({}, "off", 401, "write the token of admin.token_file"),
        ({"Authorization": "Bearer 0123456789abcdeF"}, "off", 401, "this is not the token"),
        ({"Authorization": "Bearer"}, "off", 401, "this is not the token"),
        ({"Authorization": "Basic 0123456789abcdef"}, "off", 401, "write the token"),
        ({"Authorization": "Bearer żółw"}, "off", 401, "this is not the token"),
        ({**TOKEN, "Host": "evil.example:9404"}, "off", 403, "admin.hosts"),
        (TOKEN, "Off", 400, "'Off' is not a mode: write one word"),
        (TOKEN, "", 400, "'' is not a mode"),
    ],
)
async def test_mode_request_without_valid_token_or_host_is_refused(
    token_file: Path, headers: dict[str, str], body: str, status: int, said: str
) -> None:
    async with serving(token_file) as (served, client):
        async with client.post("/mode", data=body, headers=headers) as answer:
            assert answer.status == status
            assert said in await answer.text()
        assert served.switch.mode == "enforce"


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:9404", "localhost", "ADMIN.example:80"])
async def test_mode_request_to_configured_host_name_is_accepted(token_file: Path, host: str) -> None:
    async with serving(token_file) as (served, client):
        async with client.post("/mode", data="off", headers={**TOKEN, "Host": host}) as answer:
            assert answer.status == 200
        assert served.switch.mode == "off"


async def test_mode_request_without_configured_token_names_the_setting() -> None:
    async with serving(None) as (served, client):
        async with client.post("/mode", data="off", headers=TOKEN) as answer:
            assert answer.status == 403
            assert "set admin.token_file" in await answer.text()
        assert served.switch.mode == "enforce"


async def test_replaced_or_removed_admin_token_is_refused_at_once(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        for text, status in (("another token of 24 bytes", 401), ("0123456789abcde", 503), ("", 503), (None, 503)):
            replace(token_file, text)
            async with client.post("/mode", data="off", headers=TOKEN) as answer:
                assert answer.status == status
        assert served.switch.mode == "enforce"


async def test_put_to_mode_returns_405_with_allowed_methods(token_file: Path) -> None:
    async with serving(token_file) as (_, client), client.put("/mode", data="off", headers=TOKEN) as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD, POST"


async def test_short_token_is_refused_with_the_fix(token_file: Path) -> None:
    async with serving(token_file) as (_, client):
        replace(token_file, "short")
        async with client.post("/mode", data="off", headers={"Authorization": "Bearer short"}) as answer:
            assert answer.status == 503
            said = await answer.text()
        assert "admin.token_file" in said
        assert "has 5 bytes, and can be guessed; write one into it: openssl rand -hex 32" in said


async def test_wrong_tokens_slow_their_address_and_no_other(token_file: Path) -> None:
    async with serving(token_file) as (served, client):
        for status in (*[401] * 5, 429, 429):
            async with client.post("/mode", data="off", headers={"Authorization": "Bearer wrong"}) as answer:
                assert answer.status == status
                assert answer.headers.get("Retry-After") == ("1" if status == 429 else None)
        async with client.post("/mode", data="off", headers=TOKEN) as answer:
            assert answer.status == 429
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with (
            aiohttp.ClientSession(client._base_url, connector=elsewhere) as other,
            other.post("/mode", data="off", headers=TOKEN) as answer,
        ):
            assert answer.status == 200
        assert served.switch.mode == "off"
