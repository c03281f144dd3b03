"""Who is exempt passes as it comes, is metered, and takes nothing of what others have."""

from ipaddress import ip_network

import pytest

from proxy.session.session import Session
from proxy.usage.meter import MeterKey, Traffic
from proxy.usage.records import Recorder
from quotas.entities import Default, Entity
from quotas.exemptions import Exemptions
from quotas.policy import Policy
from tests.proxy.playbook import (
    CONSUMER,
    KIB,
    PRODUCER,
    FakeWire,
    Play,
    authenticate,
    authenticate_answer,
    fetch,
    fetch_answer,
    handshake,
    handshake_answer,
    produce,
    produce_answer,
)

LIMITS = {PRODUCER: KIB, CONSUMER: KIB}
POLICY = Policy({Entity(user=Default.DEFAULT): LIMITS})
EXEMPT = Exemptions(users=["mirror"], client_ids=["tool"], networks=[ip_network("10.1.0.0/16"), ip_network("fd00::/8")])


class Connection:
    def __init__(
        self, play: Play, user: str = "ANONYMOUS", host: str = "192.0.2.1", authenticated: bool = True
    ) -> None:
        self.play = play
        self.client, self.broker = FakeWire(), FakeWire()
        play.listener.exemptions = EXEMPT
        self.session = Session(
            play.worker,
            self.client,
            lambda _: None,
            lambda _: None,
            sasl=play.sasl_rules,
            accounts=play.listener,
            peer=f"{host}:1",
            user=user,
            authenticated=authenticated,
            exempt=play.listener.exemptions.covers_address(host),
        )
        self.session.connected(self.broker, 1)

    def send(self, data: bytes) -> bytes:
        self.session.requests.feed(data, self.play.loop.now_ms)
        return self.broker.take()

    def answer(self, data: bytes) -> bytes:
        self.session.answers.feed(data, self.play.loop.now_ms)
        return self.client.take()

    def flood(self, client_id: bytes = b"app") -> None:
        """Send and fetch a hundred times the quota, twenty times; it all passes as it came."""
        for number in range(0, 40, 2):
            request = produce(number, 100 * KIB, client_id=client_id)
            assert self.send(request) == request
            assert self.answer(produce_answer(number)) == produce_answer(number)
            if client_id == b"app":
                assert self.send(fetch(number + 1)) == fetch(number + 1)
                assert self.answer(fetch_answer(number + 1, 100 * KIB)) == fetch_answer(number + 1, 100 * KIB)
        assert not self.client.paused


@pytest.mark.parametrize(
    ("user", "host", "client_id"),
    [
        ("mirror", "192.0.2.1", b"app"),
        ("alice", "10.1.2.3", b"app"),
        ("alice", "fd12::1", b"app"),
        ("alice", "192.0.2.1", b"tool"),
    ],
)
def test_exempt_client_is_neither_throttled_nor_charged(user: str, host: str, client_id: bytes) -> None:
    play = Play(policy=POLICY)
    play.worker.request_limit = 10**7
    Connection(play, user, host).flood(client_id)
    assert play.engine.usage(play.loop.now_ms) == []
    other = Connection(play, user, "192.0.2.9")
    if user == "alice":  # the same user elsewhere has all of the quota, and no more
        assert other.send(produce(1, 5 * KIB)) == produce(1, 5 * KIB)
        other.send(produce(2, 6 * KIB))
        assert other.client.paused
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert usage.charged_total < 12 * KIB


def test_exempt_client_passes_while_counter_is_in_debt() -> None:
    play = Play(policy=POLICY)
    play.worker.request_limit = 10**7
    held = Connection(play, "alice")
    held.send(produce(1, 50 * KIB))
    assert held.client.paused
    Connection(play, "alice", "10.1.2.3").flood()
    assert held.client.paused


def test_a_name_is_no_proof_before_the_login_and_a_client_id_is_not_either() -> None:
    play = Play(policy=POLICY, authenticated=False)
    connection = Connection(play, authenticated=False)
    connection.send(handshake(1, "PLAIN"))
    connection.answer(handshake_answer(1))
    connection.send(authenticate(2, b"\0mirror\0wrong"))
    connection.answer(authenticate_answer(2, error_code=58))
    assert connection.session.identity.user == "ANONYMOUS"
    again = Connection(play, authenticated=False)
    again.send(handshake(1, "PLAIN"))
    again.answer(handshake_answer(1))
    again.send(authenticate(2, b"\0mirror\0right"))
    again.answer(authenticate_answer(2))
    assert again.session.identity.user == "mirror"
    play.worker.request_limit = 10**7
    again.flood()


def test_non_exempt_client_id_on_same_connection_is_throttled() -> None:
    play = Play(policy=POLICY)
    connection = Connection(play, "alice")
    for number in range(1, 6):
        connection.send(produce(number, 10 * KIB, client_id=b"tool"))
        connection.answer(produce_answer(number))
    assert not connection.client.paused
    connection.send(produce(10, 20 * KIB))
    assert connection.client.paused
    connection.answer(produce_answer(10))
    assert connection.send(produce(11, KIB, client_id=b"tool")) == b"", "it stands behind what is held"


def test_traffic_of_exempt_client_is_metered_separately() -> None:
    play = Play(policy=POLICY)
    for host in ("10.1.2.3", "192.0.2.1"):
        connection = Connection(play, "alice", host)
        connection.send(produce(1, KIB))
        connection.answer(produce_answer(1))
    recorder = Recorder(play.meters, [play.listener], play.engine)
    traffic = [each.traffic for each in play.meters.take_traffic(play.loop.now_ms) if each.traffic.requests]
    size = len(produce(1, KIB))
    assert Traffic().plus(traffic[0]).plus(traffic[1])[:5] == (*(2 * size, 2 * len(produce_answer(1)), 2, 2, size),)
    [columns] = [each for each in recorder.take(play.loop.now_ms) if each is not None]
    assert list(zip(columns["user"], columns["exempt"], columns["produce_limit"], strict=True)) == [
        ("alice", True, None),
        ("alice", False, KIB),
    ]


def test_exempt_client_id_longer_than_stored_name_is_exempt() -> None:
    """Names are cut before they are counted; the configuration names the whole."""
    play = Play(policy=POLICY)
    name = "x" * 1000
    connection = Connection(play)
    connection.session.identity._accounts.exemptions = Exemptions(client_ids=[name])
    connection.send(produce(1, 10, client_id=name.encode()))
    assert connection.session.identity.account.key.exempt


def test_invalid_address_is_in_no_exempt_network() -> None:
    assert not EXEMPT.covers_address("")
    assert not EXEMPT.covers_address("host.example")
    assert not Exemptions().covers_address("10.1.2.3")
    assert MeterKey("PLAIN", 1, "u", "c") == ("PLAIN", 1, "u", "c", False)
