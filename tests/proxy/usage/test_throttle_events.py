"""Log events when throttles start and end."""

from collections.abc import Mapping
from typing import Any

from structlog.testing import capture_logs

from proxy.session.throttling import Throttling
from proxy.usage.accounts import Account
from proxy.usage.lately import LAST_MINUTE_MS
from proxy.usage.meter import MeterKey
from proxy.usage.meters import Meters
from proxy.usage.throttle_counts import MOST_COUNTERS, ThrottleEvents
from quotas.engine import Bound, Engine, Window
from quotas.entities import Default, Entity
from quotas.policy import Policy
from tests.proxy.playbook import PRODUCER, FakeLoop

ENGINE = Engine(Policy({Entity(client_id=Default.DEFAULT): {PRODUCER: 1024}}), Window())


def bound(client_id: str = "app") -> Bound:
    return ENGINE.resolve("alice", client_id, PRODUCER, 1)


def account(client_id: str = "app") -> Account:
    return Account(ENGINE, Meters(10), MeterKey("PLAIN", 1, "alice", client_id))


def throttling(loop: FakeLoop, events: ThrottleEvents | None) -> Throttling:
    return Throttling(
        mode="enforce",
        window_ms=1000,
        max_delay_ms=None,
        max_hold_ms=8000,
        call_later=loop.call_later,
        clock=loop.clock,
        events=events,
    )


def told(lines: list[Any]) -> list[Mapping[str, Any]]:
    return [line for line in lines if line["event"] != "first throttle"]


def test_a_throttle_is_logged_at_its_start_and_once_it_has_not_come_back_for_a_while() -> None:
    events, start_ms = ThrottleEvents(), 5000
    with capture_logs() as lines:
        for at_ms in range(start_ms, start_ms + 30_000, 5000):  # 2 s of throttle every five
            events.remember(bound(), 2000, at_ms, at_ms + 2000)
            for second in range(5):
                events.log_changes(at_ms + 1000 * second, "enforce")
        over_ms = start_ms + 25_000 + 2000
        events.log_changes(over_ms + LAST_MINUTE_MS - 1, "enforce")
        assert [line["event"] for line in lines] == ["throttle started"]
        events.log_changes(over_ms + LAST_MINUTE_MS, "enforce")
    started, ended = lines
    common = {
        "kind": "producer_byte_rate",
        "user": "",
        "client_id": "app",
        "broker": 1,
        "rule": "client-id=<default>",
        "limit": 1024,
        "mode": "enforce",
        "log_level": "info",
    }
    assert started == {"event": "throttle started", **common}
    assert ended == {"event": "throttle ended", **common, "duration_ms": 27_000, "throttle_time_ms": 12_000}


def test_requests_that_wait_count_as_throttled_until_the_last_has_gone() -> None:
    loop = FakeLoop()
    mutes, counter, client = throttling(loop, ThrottleEvents()), bound("waiting"), account("waiting")
    start_ms = loop.now_ms
    queue = counter.queue_up(mutes.alarm)

    class Request:
        def admitted(self, now_ms: int) -> None: ...
        def sent_on(self, now_ms: int) -> None: ...
        def abort(self) -> None: ...

    counter.record(1024 * 60.0, start_ms)
    with capture_logs() as lines:
        place = queue.join(Request(), ("alice", "waiting"), 1.0, start_ms)
        mutes.counts.wait(client, counter, None, 1, start_ms)
        for second in range(40):
            mutes.tidy(start_ms + 1000 * second)
        assert [line["event"] for line in told(lines)] == ["throttle started"]
        queue.leave(place, start_ms + 40_000)
        mutes.counts.wait(client, counter, None, -1, start_ms + 40_000, 40_000)
        mutes.tidy(start_ms + 40_000 + LAST_MINUTE_MS)
    ended = told(lines)[-1]
    assert (ended["event"], ended["duration_ms"], ended["throttle_time_ms"]) == ("throttle ended", 40_000, 40_000)


def test_the_number_of_counters_is_bounded_and_the_others_are_counted() -> None:
    events = ThrottleEvents(most=2)
    with capture_logs() as lines:
        for number in range(5):
            events.remember(bound(f"c{number}"), 100, 0, 100)
        events.log_changes(1000, "enforce")
        events.log_changes(2000, "enforce")
    assert [line.get("client_id", line.get("number")) for line in lines] == ["c0", "c1", 3]
    assert lines[-1]["event"] == "throttles not followed: too many counters at once"
    with capture_logs() as lines:
        events.log_changes(100 + LAST_MINUTE_MS, "enforce")
        events.remember(bound("c4"), 100, 200 + LAST_MINUTE_MS, 300 + LAST_MINUTE_MS)  # there is room again
        events.log_changes(300 + LAST_MINUTE_MS, "enforce")
    assert [(line["event"], line["client_id"]) for line in lines] == [
        ("throttle ended", "c0"),
        ("throttle ended", "c1"),
        ("throttle started", "c4"),
    ]
    assert MOST_COUNTERS == 1000


def test_throttle_events_are_logged_only_when_configured() -> None:
    loop = FakeLoop()
    with capture_logs() as lines:
        mutes = throttling(loop, None)
        mutes.counts.given(account("quiet"), bound("quiet"), 500, loop.now_ms)
        mutes.tidy(loop.now_ms + 1000)
    assert told(lines) == []
    with capture_logs() as lines:
        mutes = throttling(loop, ThrottleEvents())
        mutes.counts.given(account("quiet"), bound("quiet"), 500, loop.now_ms)
        mutes.tidy(loop.now_ms + 1000)
    assert [line["event"] for line in told(lines)] == ["throttle started"]
