import pytest
from structlog.testing import capture_logs

from proxy.runtime import faults
from proxy.session.throttling import Throttling
from proxy.usage.accounts import Account, Accounts
from proxy.usage.meters import Meters
from quotas.engine import Bound, Engine, Window
from quotas.entities import Entity
from quotas.policy import Policy
from tests.proxy.playbook import CONSUMER, PRODUCER, FakeLoop


class Recorder:
    """A muted session that notes when it was let go."""

    def __init__(self) -> None:
        self.over_at_ms: list[int] = []

    def throttle_over(self, now_ms: int) -> None:
        self.over_at_ms.append(now_ms)

    def abort(self) -> None:
        raise AssertionError("nothing fails here")


def throttling(loop: FakeLoop, mode: str = "enforce", max_delay_ms: int | None = None) -> Throttling:
    return Throttling(
        mode=mode,
        window_ms=1000,
        max_delay_ms=max_delay_ms,
        max_hold_ms=8000,
        call_later=loop.call_later,
        clock=loop.clock,
    )


def account() -> Account:
    return Accounts(Meters(1), Engine(Policy()), "PLAIN").nobody


def bound() -> Bound:
    engine = Engine(Policy({Entity(client_id="app\n"): {PRODUCER: 1024}}), Window())
    return engine.resolve("ANONYMOUS", "app\n", PRODUCER, 1)


@pytest.mark.parametrize(("mode", "enforces"), [("enforce", True), ("shadow", False)])
def test_shadow_counts_throttles_without_enforcing_them(mode: str, enforces: bool) -> None:
    counter, mutes = bound(), throttling(FakeLoop(), mode)
    mutes.counts.given(account(), counter, 700, 0)
    assert mutes.enforces is enforces
    assert (counter.throttled_total, counter.throttle_ms_total) == (1, 700)


@pytest.mark.parametrize(("throttle_ms", "max_delay_ms", "applied"), [(5000, None, 5000), (5000, 3000, 3000)])
def test_throttle_time_is_limited_to_max_delay(throttle_ms: int, max_delay_ms: int | None, applied: int) -> None:
    assert throttling(FakeLoop(), max_delay_ms=max_delay_ms).allow(throttle_ms, bound()) == applied


def test_the_first_throttle_of_a_counter_is_logged_with_the_rule_and_the_limit() -> None:
    counter = bound()
    with capture_logs() as logs:
        for _ in range(3):
            throttling(FakeLoop()).counts.given(account(), counter, 50, 0)
    (line,) = logs
    assert line["event"] == "first throttle"
    assert (line["limit"], line["client_id"], line["throttle_time_ms"]) == (1024, "app\n", 50)
    assert "client-id" in line["rule"]


def test_each_session_is_let_go_at_its_end_whatever_the_order_of_arrival() -> None:
    loop = FakeLoop()
    start_ms = loop.now_ms
    queues = throttling(loop)
    late, early, other = Recorder(), Recorder(), Recorder()
    queues.mute(PRODUCER, late.throttle_over, late.abort, start_ms + 500)
    queues.mute(PRODUCER, early.throttle_over, early.abort, start_ms + 100)
    queues.mute(CONSUMER, other.throttle_over, other.abort, start_ms + 300)
    assert queues.queue_sizes()[PRODUCER] == 2
    loop.advance(1000)
    assert [early.over_at_ms, other.over_at_ms, late.over_at_ms] == [
        [start_ms + 100],
        [start_ms + 300],
        [start_ms + 500],
    ]
    assert not any(queues.queue_sizes().values())


def test_an_unmuted_session_is_not_called_and_the_others_are() -> None:
    loop = FakeLoop()
    queues = throttling(loop)
    gone, stays = Recorder(), Recorder()
    handle = queues.mute(PRODUCER, gone.throttle_over, gone.abort, loop.now_ms + 100)
    queues.mute(PRODUCER, stays.throttle_over, stays.abort, loop.now_ms + 200)
    handle.cancel()
    loop.advance(1000)
    assert gone.over_at_ms == []
    assert len(stays.over_at_ms) == 1


def test_a_session_may_be_muted_again_from_its_own_callback() -> None:
    loop = FakeLoop()
    queues = throttling(loop)

    class Again(Recorder):
        def throttle_over(self, now_ms: int) -> None:
            super().throttle_over(now_ms)
            if len(self.over_at_ms) < 3:
                queues.mute(PRODUCER, self.throttle_over, self.abort, now_ms + 10)

    session = Again()
    queues.mute(PRODUCER, session.throttle_over, session.abort, loop.now_ms + 10)
    loop.advance(100)
    assert len(session.over_at_ms) == 3


def test_a_session_that_fails_leaves_the_others_that_are_due_alone() -> None:
    class Failing(Recorder):
        ended = False

        def throttle_over(self, now_ms: int) -> None:
            raise LookupError(now_ms)

        def abort(self) -> None:
            self.ended = True

    loop = FakeLoop()
    mutes, failing, others = throttling(loop), Failing(), [Recorder(), Recorder()]
    for session in (others[0], failing, others[1]):
        mutes.mute(PRODUCER, session.throttle_over, session.abort, loop.now_ms + 10)
    before = faults.counts["alarm"]
    loop.advance(10)
    assert [session.over_at_ms for session in others] == [[loop.now_ms]] * 2
    assert (failing.ended, faults.counts["alarm"] - before) == (True, 1)
    mutes.mute(PRODUCER, others[0].throttle_over, others[0].abort, loop.now_ms + 5)
    loop.advance(5)
    assert len(others[0].over_at_ms) == 2
