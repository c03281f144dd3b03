"""What a connection takes is given back however it ends: its accounts, its counters, its places and claims."""

from collections.abc import Callable
from typing import Final

import pytest

from config.settings import RequestCosts as Prices
from quotas.engine import Bound
from quotas.entities import Entity
from quotas.exemptions import Exemptions
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from tests.proxy.playbook import CONSUMER, KIB, PRODUCER, Play, fetch, fetch_answer, heartbeat, produce
from tests.proxy.session import test_response_stream
from tests.proxy.session.another import Another
from tests.proxy.session.mutating import create, play_with

REQUEST: Final = QuotaKind.REQUEST_PERCENTAGE
MUTATION: Final = QuotaKind.CONTROLLER_MUTATION_RATE
LIMITS: Final = {PRODUCER: KIB, CONSUMER: KIB, REQUEST: 1, MUTATION: 1}
APP: Final = Entity(client_id="app")
CAP: Final = Entity(user="ANONYMOUS", cap=True)
FOR_LONG_MS: Final = 200_000
"""Longer than any wait, and than the windows of all counters."""


def play_of(policy: Policy | None = None, **options: object) -> Play:
    """Return a play whose own client has used up the quotas of bytes; it goes at once."""
    limits = policy or Policy({APP: LIMITS, CAP: {PRODUCER: 2 * KIB, CONSUMER: 2 * KIB}})
    play = Play(policy=limits, prices=Prices(), **options)  # type: ignore[arg-type]
    play.worker.partitions = play_with().worker.partitions
    play.from_client(produce(1, 12 * KIB))
    bound = play.engine.resolve("ANONYMOUS", "app", CONSUMER, 1)
    bound.record(12 * KIB, play.loop.now_ms)
    bound.owe(2_000, play.loop.now_ms)
    play.session.close()
    return play


def later(it: Another, data: bytes) -> None:
    it.play.loop.advance(20_000)
    it.feed(data)


def close_too_early(it: Another) -> None:
    """TLS hands over what it has read when its owner closes it."""
    it.session.close()
    it.feed(of_client(99))
    it.answer(fetch_answer(1, 10))


def of_client(number: int) -> bytes:
    return produce(number, 1, client_id=f"made-up-{number}".encode())


def finish(it: Another) -> None:
    it.client.finished = True
    it.session.client_finished()


def answer_in_debt(it: Another) -> None:
    it.play.loop.advance(20_000)
    it.feed(fetch(1))
    bound = it.play.engine.resolve("ANONYMOUS", "app", CONSUMER, 1)
    bound.record(12 * KIB, it.play.loop.now_ms)
    bound.owe(3_000, it.play.loop.now_ms)
    it.answer(fetch_answer(1, 20 * KIB))


BEGINNINGS: Final[dict[str, Callable[[Another], None]]] = {
    "nothing sent": lambda _: None,
    "a Produce waits": lambda it: it.feed(produce(1, KIB)),
    "a part of a Produce waits": lambda it: it.feed(produce(1, 5 * KIB)[:KIB]),
    "a Fetch waits": lambda it: it.feed(fetch(1)),
    "a ShareFetch waits": lambda it: it.feed(test_response_stream.TestShareFetch.share_fetch(1, 10**6)),
    "requests wait behind another": lambda it: it.feed(produce(1, KIB, acks=0) + fetch(2) + heartbeat(3)),
    "topics wait": lambda it: it.feed(create(1, ("t", 3)) + create(2, ("u", 3))),
    "client-ids in flight": lambda it: it.feed(b"".join(of_client(number) for number in range(80))),
    "a large Produce comes": lambda it: later(it, produce(1, 60 * KIB)[: 30 * KIB]),
    "a Fetch is in flight": lambda it: later(it, fetch(1)),
    "an answer waits": answer_in_debt,
    "a throttle is on": lambda it: later(it, produce(1, 20 * KIB)),
}
ENDINGS: Final[dict[str, Callable[[Another], None]]] = {
    "cut off": lambda it: it.session.abort(),
    "closed": lambda it: it.session.close(),
    "the broker is lost": lambda it: it.session.broker_lost(),
    "half-closed": finish,
    "closed unseen": lambda it: setattr(it.client, "finished", True),
    "drained": lambda it: it.session.drain(),
    "broken": lambda it: it.feed(b"\x7f\xff\xff\xff" * 4),
    "more comes after the end": close_too_early,
}


def counters_of(play: Play) -> list[Bound]:
    return [bound for counters in play.engine._all for bound in counters.bounds.values()]


def expect_all_given_back(play: Play, connections: list[Another]) -> None:
    """After a while, in which the reaper would have found those that are not read, nothing is left of them."""
    play.loop.advance(FOR_LONG_MS)
    for connection in connections:
        connection.session.close()
    play.loop.advance(FOR_LONG_MS)
    play.throttling.tidy(play.loop.now_ms)
    assert not play.listener, "accounts"
    assert not sum(play.throttling.queue_sizes().values()), "mutes and waits"
    assert not play.worker.held_requests.bytes
    for bound in counters_of(play):
        assert (bound.holders, bound.promised, bool(bound.queue), bool(bound.fetches)) == (0, 0, False, False)
        assert (bound.claims.streamer, len(bound.fetches._fetchers)) == (None, 0)
    for second in range(400):
        play.throttling.tidy(play.loop.now_ms + second * 1000)
        play.engine.expire(play.loop.now_ms + second * 1000)
    assert not counters_of(play)
    assert play.engine._names._left == 16 * 2**20


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_whatever_it_waits_for_and_however_it_ends_all_is_given_back(beginning: str, ending: str) -> None:
    play = play_of()
    connections = [Another(play, accounts=play.listener) for _ in range(3)]
    for connection in connections:
        BEGINNINGS[beginning](connection)
    for connection in connections:
        ENDINGS[ending](connection)
    expect_all_given_back(play, connections)


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("change", ["limits", "rules", "no quotas", "shadow", "off", "a group", "exempt", "cluster"])
def test_a_change_while_it_waits_leaves_nothing_behind(beginning: str, change: str) -> None:
    play = play_of()
    connections = [Another(play, accounts=play.listener) for _ in range(3)]
    for connection in connections:
        BEGINNINGS[beginning](connection)
    now_ms = play.loop.now_ms
    if change in ("shadow", "off"):
        play.engine.rejudge(now_ms)
        play.throttling.set_mode(change, now_ms)
    elif change == "exempt":
        play.listener.exemptions = Exemptions(client_ids=["app"])
    else:
        play.engine.apply(CHANGES[change], now_ms)
        play.throttling.reconsider()
    for connection in connections:
        if not connection.client.paused:
            connection.feed(heartbeat(7) + produce(8, 20 * KIB))
    play.loop.advance(5_000)
    for connection in connections:
        connection.session.abort()
    expect_all_given_back(play, connections)


CHANGES: Final = {
    "limits": Policy({APP: dict.fromkeys(LIMITS, 5_000)}),
    "rules": Policy({Entity(user="ANONYMOUS"): LIMITS, APP: LIMITS, Entity(client_id="app", cap=True): LIMITS}),
    "no quotas": Policy(),
    "a group": Policy({APP: LIMITS}, {}, {"all": ["ANONYMOUS"]}),
    "cluster": Policy({APP: LIMITS}, {APP: Terms(of_cluster=True)}),
}


def test_a_storm_of_connections_leaves_nothing_behind() -> None:
    """Each begins and ends in another way, with a client-id of its own in flight; all at the counters of one client."""
    play = play_of()
    connections = []
    for round_ in range(2):
        for number, ending in enumerate(ENDINGS.values()):
            for beginning in BEGINNINGS.values():
                connection = Another(play, accounts=play.listener)
                connections.append(connection)
                beginning(connection)
                play.loop.advance(37 * (number + round_))
                ending(connection)
    expect_all_given_back(play, connections)
