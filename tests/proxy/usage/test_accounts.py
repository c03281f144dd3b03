"""Whom requests belong to: accounts that connections share, and how long they and their meters last."""

from collections.abc import Callable

import pytest

from protocol import headers
from protocol.table import ApiSpec
from proxy.session import client_identity, exchange
from proxy.usage.accounts import Accounts
from proxy.usage.meters import Meters
from quotas.engine import Engine
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.proxy.playbook import Play, list_offsets_answer, produce, produce_answer, request

PRODUCER, CONSUMER = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE


def asked(correlation_id: int, client_id: bytes) -> bytes:
    return request(2, 5, correlation_id, bytes(9), client_id)


OF_ALL = Policy({Entity(client_id=Default.DEFAULT): {PRODUCER: 1000.0}})


def test_connections_of_a_client_share_its_account_and_its_counters() -> None:
    accounts = Accounts(Meters(10), engine := Engine(OF_ALL), "PLAIN")
    first, second = (accounts.hold(1, "alice", "app") for _ in range(2))
    assert first is second
    assert first.bounds(PRODUCER)[0] is engine.resolve("alice", "app", PRODUCER, 1)
    assert accounts.hold(2, "alice", "app") is not first, "quotas are per broker"
    assert accounts.hold(1, "bob", "app").bounds(PRODUCER)[0] is first.bounds(PRODUCER)[0], (
        "the quota is for a client-id"
    )


def test_bounds_are_those_of_the_quotas_in_force() -> None:
    accounts = Accounts(Meters(10), engine := Engine(Policy()), "PLAIN")
    account = accounts.hold(1, "alice", "app")
    assert account.bounds(PRODUCER)[0].limit is None
    engine.apply(OF_ALL, 0)
    assert account.bounds(PRODUCER)[0].limit == 1000
    engine.apply(Policy({Entity(user="alice"): {PRODUCER: 5.0, CONSUMER: 7.0}}), 0)
    assert (account.bounds(PRODUCER)[0].limit, account.bounds(CONSUMER)[0].limit) == (5, 7)


def test_no_quota_holds_for_nobody() -> None:
    accounts = Accounts(Meters(10), Engine(OF_ALL), "PLAIN")
    bound = accounts.nobody.bounds(PRODUCER)[0]
    assert bound.charge(10**9, 0) == 0
    assert bound.limit is None


def test_an_account_lasts_as_long_as_somebody_holds_it() -> None:
    accounts = Accounts(meters := Meters(10), Engine(OF_ALL), "PLAIN")
    account = accounts.hold(1, "alice", "app")
    meters.drop_unused(meters)
    assert list(meters) == [account.key]
    accounts.give_back(account)
    assert len(accounts) == 0
    meters.drop_unused(meters)
    assert len(meters) == 0
    account.live_meter.other_requests += 1  # what would have happened in shadow is counted late
    assert meters[account.key].other_requests == 1
    assert accounts.hold(1, "alice", "app").meter is meters[account.key]


def test_counters_are_held_while_the_account_is_and_by_nobody_after_it() -> None:
    accounts = Accounts(Meters(10), engine := Engine(OF_ALL), "PLAIN")
    account = accounts.hold(1, "alice", "app")
    (bound,) = account.limited(PRODUCER)
    assert bound.holders == 1
    engine.apply(Policy({Entity(user="alice"): {PRODUCER: 5.0}}), 0)
    (other,) = account.bounds(PRODUCER)
    assert (bound.holders, other.holders) == (0, 1), "another quota is in force"
    accounts.give_back(account)
    assert other.holders == 0
    account.charge(PRODUCER, 1, 0)  # a late one is charged, and holds nothing
    assert other.holders == 0
    assert other.recorded_total == 1


def test_clients_beyond_the_most_share_a_meter_and_keep_their_quotas() -> None:
    policy = Policy({Entity(client_id="app-2"): {PRODUCER: 2.0}, Entity(client_id="app-3"): {PRODUCER: 3.0}})
    accounts = Accounts(Meters(1), Engine(policy), "PLAIN")
    held = [accounts.hold(1, "alice", f"app-{number}") for number in range(4)]
    assert held[2].meter is held[3].meter is not held[0].meter
    assert [account.bounds(PRODUCER)[0].limit for account in held] == [None, None, 2, 3]
    for account in held[:3]:
        accounts.give_back(account)
    assert held[3].meter.holders == 1


def test_an_account_is_held_until_its_last_answer() -> None:
    one = Play()
    one.from_client(asked(1, b"a") + asked(2, b"b") + asked(3, b"a"))
    assert len(one.listener) == 2
    one.from_broker(list_offsets_answer(1) + list_offsets_answer(2) + list_offsets_answer(3))
    one.from_client(asked(4, b"c"))
    assert len(one.listener) == 1, "what no answer is to come for any more is given back at the next switch"
    one.session.close()
    assert len(one.listener) == 0


def test_connection_with_many_client_ids_is_paused_until_answers() -> None:
    """Each account that answers are still to come for is kept, so there may not be any number of them."""
    play = Play()
    sent = [asked(number, b"%d" % number) for number in range(200)]
    forwarded = play.from_client(b"".join(sent))
    assert len(play.listener) <= 66
    assert play.client.paused
    answered = 0
    while answered < 200:
        play.from_broker(list_offsets_answer(answered))
        answered += 1
    assert forwarded + b"".join(play.broker.sent) == b"".join(sent)
    assert not play.client.paused


@pytest.mark.uncompiled("calls are counted inside")
@pytest.mark.parametrize("make", [lambda: produce(1, 100, client_id=b"new"), lambda: asked(1, b"new")])
def test_the_header_of_a_new_client_id_is_read_once(monkeypatch: pytest.MonkeyPatch, make: Callable[[], bytes]) -> None:
    read: list[int] = []
    offset = headers.request_body_offset

    def counted(spec: ApiSpec, data: bytes, start: int, end: int) -> int:
        read.append(1)
        return offset(spec, data, start, end)

    for module in (client_identity, exchange):
        monkeypatch.setattr(module, "request_body_offset", counted)
    play = Play()
    play.from_client(make())
    assert read == [1]
    play.from_broker(produce_answer(1) if make() == produce(1, 100, client_id=b"new") else list_offsets_answer(1))
    play.from_client(make())
    assert read == [1]
