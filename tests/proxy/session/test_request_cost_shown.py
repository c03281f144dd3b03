"""request_percentage: what the metrics and the usage records show is what was charged, and who is charged for what."""

import pytest

from quotas.engine import Engine, Window
from quotas.entities import Default, Entity
from quotas.policy import Policy
from tests.proxy.playbook import (
    Play,
    authenticate,
    authenticate_answer,
    frame,
    handshake,
    handshake_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    request,
)
from tests.proxy.session.another import Another
from tests.proxy.session.request_play import REQUEST, charged, recorded_us, request_quota, take

DESCRIBE_QUORUM, LEADER_AND_ISR = 55, 4
REFUSED = b"\0\x1f"
"""CLUSTER_AUTHORIZATION_FAILED."""


def rate(play: Play) -> float:
    """Percent, as the gauge shows it."""
    return sum(usage.rate for usage in play.engine.usage(play.loop.now_ms) if usage.kind is REQUEST)


def throttled(play: Play) -> tuple[int, int]:
    """How often and for how long, as counters show it."""
    usages = [usage for usage in play.engine.usage(play.loop.now_ms) if usage.kind is REQUEST]
    return sum(usage.throttled_total for usage in usages), sum(usage.throttle_ms_total for usage in usages)


COST_US = 5000.0


def drive(play: Play, connections: int, seconds: int) -> list[Another]:
    """Have all send one request after the other, each answered after 5 ms."""
    ends = [Another(play) for _ in range(connections)]
    due_ms = [0] * connections
    for _ in range(seconds * 1000):
        for index, end in enumerate(ends):
            if due_ms[index] and play.loop.now_ms >= due_ms[index]:
                end.session.answers.feed(list_offsets_answer(1 + index), play.loop.now_ms)
                due_ms[index] = 0
            if not due_ms[index] and not end.client.paused and not end.session.requests.splitter.held_bytes:
                end.session.requests.feed(list_offsets(1 + index), play.loop.now_ms)
            if end.broker.take():
                due_ms[index] = play.loop.now_ms + 5
        play.loop.advance(1)
    return ends


class TestShownCost:
    def test_twenty_connections_are_one_counter_and_its_figures_are_theirs(self) -> None:
        play = request_quota(2.0, other_us=COST_US)
        drive(play, connections=20, seconds=30)
        assert charged(play) == pytest.approx(recorded_us(play) * 1e-4)
        assert charged(play) <= 2.0 * (30 + 10) * 1.15
        times, throttle_ms = throttled(play)
        assert times > 0
        assert 0 < throttle_ms <= 20 * 31_000

    def test_after_a_pause_the_rate_is_none_and_the_sums_are_what_they_were(self) -> None:
        play = request_quota(2.0, other_us=300_000.0)
        take(play, list_offsets(1), list_offsets_answer(1))
        sums = charged(play), recorded_us(play), throttled(play)
        assert rate(play) > 2.0
        play.loop.advance(30_000)
        assert rate(play) == 0
        assert (charged(play), recorded_us(play), throttled(play)) == sums
        assert take(play, list_offsets(2), list_offsets_answer(2), 1)

    def test_shadow_shows_the_same_use_and_throttles_that_nobody_had(self) -> None:
        figures = []
        for mode in ("enforce", "shadow"):
            play = request_quota(2.0, mode=mode, other_us=250_000.0)
            for number in range(1, 6):
                take(play, list_offsets(number), list_offsets_answer(number), 50)
                play.loop.advance(12_000)
            figures.append((charged(play), recorded_us(play), throttled(play)[0]))
        assert figures[0] == pytest.approx(figures[1])

    @pytest.mark.long
    def test_twenty_connections_in_shadow_go_on_and_what_they_would_wait_is_counted(self) -> None:
        play = request_quota(2.0, mode="shadow", other_us=COST_US)
        ends = drive(play, connections=20, seconds=5)
        assert not any(end.client.paused for end in ends)
        assert charged(play) == pytest.approx(recorded_us(play) * 1e-4, rel=0.01)
        assert charged(play) > 20 * 5 * 100 * 0.5
        assert throttled(play)[1] > 0

    def test_after_a_restart_nothing_is_owed_and_nothing_is_counted_twice(self) -> None:
        policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: 2.0}})
        before = request_quota(2.0, other_us=600_000.0)
        take(before, list_offsets(1), list_offsets_answer(1))
        after = Play(engine=Engine(policy, Window()), policy=policy)
        assert (charged(after), recorded_us(after), throttled(after)) == (0, 0, (0, 0))
        assert take(after, list_offsets(1), list_offsets_answer(1), 1)


class TestChargedClient:
    def test_acks_0_is_exempt(self) -> None:
        play = request_quota()
        for number in range(50):
            play.from_client(produce(number, 100, acks=0))
        assert (recorded_us(play), charged(play)) == (0, 0.0)
        assert play.costs.exempt_us == 50 * 40

    def test_produce_with_acks_is_charged_not_exempt(self) -> None:
        play = request_quota()
        take(play, produce(1, 100), produce_answer(1), 1)
        assert play.costs.exempt_us == 0
        assert recorded_us(play) > 0

    def test_a_cluster_action_that_the_broker_refuses_is_charged(self) -> None:
        """And one that it carries out: what admin clients send to brokers is not exempt there either."""
        for answer in (REFUSED, b"\0\0"):
            play = request_quota()
            asked = request(DESCRIBE_QUORUM, 0, 1, b"\0\1\0")
            take(play, asked, frame(b"\0\0\0\1\0" + answer + b"\1\0"), 50)
            assert recorded_us(play) > 0
            assert charged(play) == pytest.approx(recorded_us(play) * 1e-4)

    def test_requests_between_brokers_are_not_served_and_cost_nobody_anything(self) -> None:
        play = request_quota()
        assert play.from_client(request(LEADER_AND_ISR, 4, 1, bytes(20))) == b""
        assert (recorded_us(play), charged(play), play.costs.exempt_us) == (0, 0.0, 0)

    def test_a_login_that_is_done_again_costs_nothing(self) -> None:
        """On a connection that is authenticated and has been charged before."""
        play = request_quota()
        take(play, list_offsets(1), list_offsets_answer(1), 1)
        before = recorded_us(play), charged(play)
        play.from_client(handshake(2, "PLAIN"))
        play.loop.advance(300)
        play.from_broker(handshake_answer(2))
        play.from_client(authenticate(3, b"\0alice\0secret"))
        play.loop.advance(300)
        play.from_broker(authenticate_answer(3))
        assert (recorded_us(play), charged(play)) == before
