"""The page over HTTP: what it asks the state for, what it lets through, and how large it is."""

import asyncio
import re

import pytest

from proxy.page.open_pages import MOST_STREAMS, Streams
from tests.proxy.page.fake_state import HOSTILE, client, throttled
from tests.proxy.page.serving import serving

pytestmark = pytest.mark.asyncio

PATHS = ("/", "/client?user=greedy&client_id=app", "/quotas", "/login")
MOST_BYTES = 150_000


@pytest.mark.parametrize("path", [*PATHS, "/page.css", "/page.js", "/client", "/?q=%00%ff&offset=-1&sort=;&all=2"])
async def test_each_answer_forbids_what_it_does_not_need(path: str) -> None:
    async with serving() as (_, client_), client_.get(path) as answer:
        assert answer.status == 200
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;")
        assert "form-action 'self'; frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"


async def test_all_of_a_full_page_is_small_and_asks_for_nothing_outside() -> None:
    async with serving() as (served, client_):
        served.state.items["throttled"] = [throttled(f"user-{number}") for number in range(100)]
        served.state.items["clients"] = [client(f"user-{number}") for number in range(1000)]
        size = 0
        for path in ("/?q=user", "/page.css", "/page.js"):
            async with client_.get(path) as answer:
                text = await answer.text()
                size += len(text.encode())
                outside = re.findall(
                    r"""(?:src|href|action|url)\s*[=(]\s*["']?(?!/(?!/)|\?|data:,|#main)[^"')\s>]+""", text
                )
                assert outside == []
        assert 50_000 < size < MOST_BYTES


async def test_names_are_escaped_wherever_they_are_shown() -> None:
    async with serving() as (served, client_):
        for name in HOSTILE:
            served.state.items["throttled"] = [throttled(name, name)]
            served.state.items["clients"] = [client(name, name)]
            for path in ("/", "/quotas"):
                async with client_.get(path) as answer:
                    text = await answer.text()
            async with client_.get("/client", params={"user": name.encode(errors="replace").decode()}) as answer:
                text += await answer.text()
            assert "<script>doc" not in text
            assert '" onmouseover' not in text
            assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)


async def test_search_and_pages_are_asked_of_the_state() -> None:
    async with serving() as (served, client_):
        async with client_.get("/?q=GREEDY&offset=100&sort=-bytes_in_per_s&all=1") as answer:
            assert answer.status == 200
        asked = dict(served.state.asked)
        wanted = {"limit": "100", "offset": "100", "sort": "-bytes_in_per_s", "q": "GREEDY", "all": "1"}
        assert asked["clients"] == wanted
        assert asked["throttled"]["q"] == asked["connections"]["q"] == "GREEDY"


async def test_an_instance_that_does_not_answer_is_named() -> None:
    async with serving() as (served, client_):
        served.state.instance["instance"] = "sluice-0"
        served.state.instances = [
            {"instance": "sluice-1", "error": "timed out"},
            {"instance": "sluice-0", "error": None},
        ]
        async with client_.get("/?all=1") as answer:
            text = re.sub("<[^>]+>", "", await answer.text())
    assert "Nothing from instance sluice-1: timed out" in text
    assert "Nothing from instance sluice-0" not in text


async def test_page_of_all_instances_shows_broker_figures_of_owner() -> None:
    async with serving() as (served, client_):
        [known, _] = served.state.items["brokers"]
        served.state.items["brokers"] = [
            {**known, "node_id": node_id, "owner": "one", "instance": instance, "connections": connections}
            for instance, node_id, connections in (("two", 1, 777), ("one", 1, 888), ("one", 2, 888), ("two", 2, 777))
        ]
        async with client_.get("/?all=1") as answer:
            text = await answer.text()
    assert (text.count(">888<"), text.count(">777<")) == (2, 0)


@pytest.mark.parametrize("path", [*PATHS[:3], "/limits", "/events?page=overview"])
async def test_a_foreign_name_is_refused(path: str) -> None:
    async with serving() as (_, client_), client_.get(path, headers={"Host": "evil.example"}) as answer:
        assert answer.status == 403
        assert "admin.hosts" in await answer.text()


async def test_a_stream_sends_the_page_again_and_again_and_ends() -> None:
    turns = 0

    async def next_turn() -> None:
        nonlocal turns
        turns += 1
        served.state.items["throttled"] = [throttled(f"turn-{turns}")]
        served.state.instance["mode"] = f"mode-{turns}"

    async with (
        serving(streams=Streams(next_turn)) as (served, client_),
        client_.get("/events?page=overview&q=turn") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        text = await answer.text()
    events = text.split("\n\n")
    assert [event.split("\n")[0] for event in events[:3]] == ["retry: 500", "event: live", "event: live"]
    assert all(line.startswith("data: ") for line in events[1].split("\n")[1:])
    assert text.count("event: live") == turns > 1


async def test_few_streams_leave_connections_to_others() -> None:
    forever = asyncio.Event()

    async def next_turn() -> None:
        await forever.wait()

    streams = Streams(next_turn)
    async with serving(streams=streams) as (_, client_):
        answers = [await client_.get("/events?page=overview") for _ in range(MOST_STREAMS)]
        async with client_.get("/events?page=quotas") as answer:
            assert answer.status == 503
        async with client_.get("/metrics") as answer:
            assert answer.status == 200
        forever.set()
        for each in answers:
            await each.read()
        assert streams.open == 0


async def test_a_stream_of_no_page_is_not_there() -> None:
    async with serving() as (_, client_), client_.get("/events?page=message") as answer:
        assert answer.status == 404
