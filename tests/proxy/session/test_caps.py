"""Caps beside quotas: both charged, the stricter holds, and everybody gets on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import RequestCosts as Prices
from proxy.session.exchange import NONE
from quotas.entities import Default, Entity, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from tests.harness.examples import examples
from tests.proxy.playbook import Play, produce, produce_answer, throttle_of
from tests.proxy.session.tenants import (
    KIND,
    TENANT,
    Connection,
    Consumer,
    between,
    cap,
    most_beyond,
    policy,
    run,
)

EACH = Entity(Default.DEFAULT)
FETCH = QuotaKind.CONSUMER_BYTE_RATE


def test_produce_under_quota_and_cap_gets_longer_throttle_time() -> None:
    play = Play(policy=policy((Entity("ANONYMOUS"), 2000), (cap("ANONYMOUS"), 1000)))
    play.from_client(produce(1, 11_900))
    told_ms = throttle_of(play.from_broker(produce_answer(1)))
    quota = play.engine.resolve("ANONYMOUS", "app", KIND, 1)
    (other,) = play.engine.resolve_caps("ANONYMOUS", "app", KIND, 1)
    assert quota.recorded_total == other.recorded_total > 11_900
    assert quota.owed_ms(play.loop.now_ms) == 0
    assert told_ms == other.owed_ms(play.loop.now_ms) >= 1900
    assert (quota.throttled_total, other.throttled_total) == (0, 1)
    assert play.from_client(produce(2, 10)) == b""
    play.loop.advance(told_ms)
    assert play.broker.take() == produce(2, 10)


@pytest.mark.parametrize("reconnecting", [False, True])
def test_a_tenant_is_held_whoever_of_it_comes_and_each_user_gets_on(reconnecting: bool) -> None:
    """Two users under quotas of their own, twenty client-ids, twice as much allowed to users as to the tenant."""
    play = Play(policy=policy((EACH, 20_000), (cap(TENANT), 20_000)))
    users = {
        user: [Connection(play, user, f"{user}-{number}") for number in range(10)] for user in ("alice", "bob", "carol")
    }
    connections = [*users["alice"], *users["bob"], users["carol"][0]]
    for round_ in range(60):
        run(play, connections, 1)
        if reconnecting:
            connections[round_ % 10].reconnect()
    begin_ms, end_ms = 1_015_000, 1_059_000  # four windows: a burst comes once in each
    assert 0.95 < between(connections, begin_ms, end_ms) / 44 / 20_000 < 1.05
    assert most_beyond(connections, 20_000) < 11.5
    for connection in connections[10:] if reconnecting else connections:
        assert between([connection], begin_ms, end_ms) > 0


def test_a_new_name_for_each_request_gains_nothing() -> None:
    play = Play(policy=policy((Entity(client_id=Default.DEFAULT), 5_000), (cap(Default.DEFAULT), 10_000)))
    greedy = [Connection(play, "alice", str(number)) for number in range(5)]
    for second in range(40):
        for number, connection in enumerate(greedy):
            connection.client_id = f"{second}-{number}"
        run(play, greedy, 1)
    assert between(greedy, 1_015_000, 1_040_000) / 25 / 10_000 < 1.15
    assert most_beyond(greedy, 10_000) < 12


def test_user_over_own_quota_does_not_delay_its_tenant() -> None:
    play = Play(policy=policy((Entity("alice"), 1_000), (cap(TENANT), 20_000)))
    alice = [Connection(play, "alice", size=3_000) for _ in range(5)]
    bob = [Connection(play, "bob") for _ in range(2)]
    run(play, [*alice, *bob], 50)
    assert most_beyond(alice, 1_000) < 14.5  # as without a cap: eleven seconds' worth and a request
    assert 0.9 < between([*alice, *bob], 1_015_000, 1_048_000) / 33 / 20_000 < 1.05


def test_crossing_caps_starve_nobody() -> None:
    """One request needs what two crowds use up, each of which needs one of them alone."""
    play = Play(policy=policy((cap("alice"), 5_000), (cap(None, "app"), 5_000)))
    crowds = [Connection(play, "alice", "else", 2_000) for _ in range(4)]
    crowds += [Connection(play, "bob", "app", 2_000) for _ in range(4)]
    both = Connection(play, "alice", "app", 2_000)
    run(play, [*crowds, both], 120)
    assert between([both], 1_020_000, 1_120_000) > 5 * 2_000
    of_alice = [*crowds[:4], both]
    assert 0.8 < between(of_alice, 1_020_000, 1_120_000) / 100 / 5_000 < 1.05
    assert most_beyond(of_alice, 5_000) < 11.5
    assert most_beyond([*crowds[4:], both], 5_000) < 11.5


_USERS = st.sampled_from(("alice", "bob", "carol", "dave"))
_CLIENT_IDS = st.sampled_from(("team-a-1", "team-b", "app"))
_ENTITIES = st.sampled_from(
    (cap("alice"), cap(TENANT), cap(Default.DEFAULT), cap(None, Prefix("team-")), cap(None, "app"), cap(None, "team-b"))
)


@examples(0.3)
@given(
    st.dictionaries(_ENTITIES, st.sampled_from((4_000.0, 10_000.0)), min_size=1, max_size=4),
    st.lists(st.tuples(_USERS, _CLIENT_IDS, st.sampled_from((500, 3_000))), min_size=2, max_size=6),
)
def test_every_cap_is_kept_and_every_connection_progresses(
    caps: dict[Entity, float], clients: list[tuple[str, str, int]]
) -> None:
    play = Play(policy=policy((EACH, 8_000), *caps.items()))
    connections = [Connection(play, user, name, size) for user, name, size in clients]
    run(play, connections, 40, step_ms=25)
    charged_to: dict[object, tuple[float, list[Connection]]] = {}
    for connection in connections:
        names = (connection.user, connection.client_id, KIND, 1)
        for bound in (play.engine.resolve(*names), *play.engine.resolve_caps(*names)):
            assert bound.limit is not None
            charged_to.setdefault(bound.key, (bound.limit, []))[1].append(connection)
    for limit, of_counter in charged_to.values():
        assert most_beyond(of_counter, limit) < 11 + 3_200 / limit
    for connection in connections:
        assert between([connection], 1_025_000, 1_040_000) > 0


def test_fetches_of_tenant_share_the_rate_of_its_cap() -> None:
    play = Play(policy=policy((EACH, 100_000), (cap(TENANT), 20_000), kind=FETCH))
    consumers: list[Connection] = [Consumer(play, user, size=5_000) for user in ("alice", "bob", "carol")]
    run(play, consumers, 60)
    assert 0.9 < between(consumers, 1_015_000, 1_059_000) / 44 / 20_000 < 1.05
    assert most_beyond(consumers, 20_000) < 13
    for consumer in consumers:
        assert between([consumer], 1_020_000, 1_060_000) > 0


def test_rest_of_large_produce_waits_for_slowest_counter() -> None:
    """One is let through to its end, and stops midway; the other comes no faster than the slowest counter allows."""
    play = Play(policy=policy((Entity("alice"), 50_000), (cap(TENANT), 10_000)))
    first, large = Connection(play, "alice"), Connection(play, "alice")
    first.session.requests.feed(produce(1, 900_000)[:550_000], play.loop.now_ms)
    play.loop.advance(60_000)
    request = produce(1, 400_000)
    at, begin_ms = 0, play.loop.now_ms
    while at < len(request):
        if not large.client.paused:
            large.session.requests.feed(request[at : at + 10_000], play.loop.now_ms)
            at += 10_000
        if data := large.broker.take():
            large.went.append((play.loop.now_ms, len(data)))
        play.loop.advance(50)
        assert play.loop.now_ms < begin_ms + 120_000
    assert 28_000 < play.loop.now_ms - begin_ms < 45_000
    assert most_beyond([large], 10_000) < 13


def test_unsent_rest_of_produce_is_refunded_to_quota_and_cap() -> None:
    play = Play(policy=policy((Entity("alice"), 50_000), (cap(TENANT), 50_000)))
    connection = Connection(play, "alice")
    connection.session.requests.feed(produce(1, 100_000)[:1000], play.loop.now_ms)
    bounds = [play.engine.resolve("alice", "app", KIND, 1), *play.engine.resolve_caps("alice", "app", KIND, 1)]
    assert [bound.recorded_total > 100_000 for bound in bounds] == [True, True]
    connection.session.close()
    assert [bound.recorded_total for bound in bounds] == [996, 996]


def test_cap_added_or_removed_applies_to_connected_clients_at_once() -> None:
    before = policy((Entity("alice"), 1_000_000))
    play = Play(policy=before)
    connections = [Connection(play, "alice"), Connection(play, "bob")]
    run(play, connections, 1)
    capped = policy((Entity("alice"), 1_000_000), (cap(TENANT), 2_000))
    play.engine.apply(capped, play.loop.now_ms)
    play.throttling.reconsider()
    begin_ms = play.loop.now_ms
    run(play, connections, 60)
    assert between(connections, begin_ms + 20_000, begin_ms + 60_000) / 40 / 2_000 < 1.1
    play.engine.apply(before, play.loop.now_ms)
    play.throttling.reconsider()
    begin_ms = play.loop.now_ms
    play.loop.advance(1_100)  # a mute stays for the time that was told, as in Kafka
    run(play, connections, 20)
    assert between(connections, begin_ms, begin_ms + 20_000) > 10 * 2_000 * 20


def test_cap_in_shadow_counts_throttles_and_holds_nobody() -> None:
    limits = ((Entity("alice"), 50_000.0), (cap(TENANT), 1_000.0))
    play = Play(policy=policy(*limits, terms={cap(TENANT): Terms(shadow=True)}))
    connection = Connection(play, "alice")
    run(play, [connection], 5)
    (bound,) = play.engine.resolve_caps("alice", "app", KIND, 1)
    assert bound.limit is None
    assert bound.shadow_throttled_total > 0
    assert between([connection], 0, 2_000_000) > 100_000
    assert not bound.throttled_total


def test_topics_refused_by_quota_or_cap_are_not_charged() -> None:
    from quotas.mutations import Ruling, TokenBound

    kind = QuotaKind.CONTROLLER_MUTATION_RATE
    engine = Play(policy=policy((Entity("alice"), 10), (cap(TENANT), 1), kind=kind)).engine
    bounds = [engine.resolve("alice", "", kind, 1), *engine.resolve_caps("alice", "", kind, 1)]
    assert all(isinstance(bound, TokenBound) for bound in bounds)
    buckets = [bound for bound in bounds if isinstance(bound, TokenBound)]
    ruling = Ruling(buckets, strict=True)
    assert [ruling.accepts(6, 0) for _ in range(3)] == [True, True, False]
    assert [bound.tokens(0) for bound in bounds if isinstance(bound, TokenBound)] == [98, -1]
    assert ruling.throttle_ms(0) == 1000


def test_clients_below_quota_and_cap_pass_without_admission_queue() -> None:
    play = Play(policy=Policy({Entity(client_id="app"): {KIND: 1e9}, cap("alice"): {KIND: 5000.0}}))
    play.from_client(produce(1, 10))
    assert play.session.policies.produces.prefix.number != NONE
    assert play.session.identity.account.bounds(KIND)[1:] == ()
    other = Connection(play, "alice")
    (bound,) = play.engine.resolve_caps("alice", "app", KIND, 1)
    for number in range(1, 60):  # all but the first without the gate, up to the one that is over
        assert not other.client.paused, number
        other.session.requests.feed(produce(number, 960), play.loop.now_ms)
        other.broker.take()
        assert other.session.policies.produces.prefix.number != NONE
        assert bound.recorded_total == 1000 * number
        if bound.owed_ms(play.loop.now_ms):
            break
        other.session.answers.feed(produce_answer(number), play.loop.now_ms)
    assert number == 51
    assert other.client.paused
    other.session.answers.feed(produce_answer(number), play.loop.now_ms)
    assert throttle_of(other.client.take()) == bound.owed_ms(play.loop.now_ms)


def test_the_time_of_threads_of_a_tenant_has_a_cap_where_no_quota_is_of_that_kind() -> None:
    kind = QuotaKind.REQUEST_PERCENTAGE
    dear = Prices(produce_us=200_000.0)  # 20 percent-seconds, where ten seconds' worth are 10
    play = Play(policy=policy((cap(TENANT), 1.0), kind=kind), prices=dear)
    first, other = Connection(play, "alice"), Connection(play, "bob")
    first.session.requests.feed(produce(1, 10), play.loop.now_ms)
    first.session.answers.feed(produce_answer(1), play.loop.now_ms)
    (tenant,) = play.engine.resolve_caps("alice", "app", kind, 1)
    assert tenant.recorded_total > 10
    assert tenant.throttled_total > 0
    Connection(play, "carol").session.requests.feed(produce(1, 10), play.loop.now_ms)  # one in each window goes
    other.session.requests.feed(produce(1, 10), play.loop.now_ms)
    assert other.broker.take() == b""
    play.loop.advance(60_000)
    assert other.broker.take() == produce(1, 10)
