"""What strangers make the proxy keep is bounded for all of them together, and no honest client pays for it."""

from struct import pack

import pytest

from protocol.errors import Cause, ProtocolError
from protocol.overlay import CREATE_TOPICS
from proxy.session.worker_state import FREE_BYTES
from quotas.kinds import QuotaKind
from tests.proxy.playbook import Play, authenticate, authenticate_answer, frame, handshake, handshake_answer, request
from tests.proxy.session.another import Another

KIB = 1024
TOKEN = b"n,,n=a,r=" + b"x" * 500_000


def stranger(play: Play) -> Another:
    another = Another(play, authenticated=False)
    another.send(handshake(1, "SCRAM-SHA-256"))
    another.session.answers.feed(handshake_answer(1), play.loop.now_ms)
    return another


def send(another: Another, data: bytes) -> None:
    """As a transport does."""
    for begin in range(0, len(data), 60 * KIB):
        if another.session.closed:
            return
        try:
            another.send(data[begin : begin + 60 * KIB])
        except ProtocolError as error:
            another.session.reject("client", error)


@pytest.fixture
def play() -> Play:
    play = Play({QuotaKind.CONTROLLER_MUTATION_RATE: 10.0}, authenticated=False)
    play.worker.unauthenticated_request_limit = 512 * KIB
    play.worker.held_requests.most_bytes = 4 * KIB * KIB
    play.session.requests.splitter.limit = 512 * KIB
    return play


def kept(*connections: Another) -> int:
    """Bytes, as the splitters have them."""
    return sum(each.session.requests.splitter.held_bytes for each in connections if not each.session.closed)


def test_halves_of_long_tokens_are_kept_up_to_a_bound_in_all(play: Play) -> None:
    strangers = [stranger(play) for _ in range(60)]
    for each in strangers:
        send(each, authenticate(2, TOKEN)[:400_000])
        assert kept(*strangers) <= play.worker.held_requests.most_bytes + 60 * FREE_BYTES
    closed = [each for each in strangers if each.session.closed]
    assert len(closed) == 50
    assert {error.cause for _, error in play.rejected} == {Cause.KEPT_TOO_MUCH}
    assert play.worker.held_requests.bytes == kept(*strangers) == 4_000_000
    for each in strangers:
        each.session.close()
    assert play.worker.held_requests.bytes == 0


def test_a_login_of_usual_length_ends_well_meanwhile(play: Play) -> None:
    for _ in range(20):
        send(stranger(play), authenticate(2, TOKEN)[:400_000])
    honest, large = stranger(play), stranger(play)
    for each, size in ((honest, 2 * KIB), (large, 48 * KIB)):  # a password, and what Kerberos may take
        whole = authenticate(2, b"n,,n=alice,r=" + b"y" * size)
        send(each, whole[:-1])
        assert not each.session.closed
        assert each.send(whole[-1:]) == whole
    send(large, b"")
    assert play.worker.held_requests.bytes <= play.worker.held_requests.most_bytes


def test_requests_behind_logins_and_raw_tokens_are_bounded_together(play: Play) -> None:
    crowd = []
    for number in range(60):
        another = Another(play, authenticated=False)
        crowd.append(another)
        if number % 2:
            send(another, handshake(1, "SCRAM-SHA-256") + request(18, 0, 2, bytes(200_000)))
        else:
            another.send(handshake(1, "SCRAM-SHA-256", version=0))
            another.session.answers.feed(frame(pack(">ihi", 1, 0, 0)), play.loop.now_ms)
            send(another, pack(">i", 500_000) + bytes(200_000))
        assert kept(*crowd) <= play.worker.held_requests.most_bytes + 60 * FREE_BYTES


def test_topic_requests_gathered_for_many_clients_are_bounded_together(play: Play) -> None:
    crowd = [Another(play) for _ in range(60)]
    for each in crowd:
        send(each, request(CREATE_TOPICS, 4, 1, bytes(200_000))[:150_000])
        assert kept(*crowd) <= play.worker.held_requests.most_bytes + 60 * FREE_BYTES
    assert 0 < len([each for each in crowd if each.session.closed]) < 60


def test_completed_login_is_released_from_held_bytes(play: Play) -> None:
    each = stranger(play)
    whole = authenticate(2, TOKEN[:100_000])
    send(each, whole[:-1])
    assert play.worker.held_requests.bytes == len(whole) - 1
    each.send(whole[-1:])
    each.session.answers.feed(authenticate_answer(2), play.loop.now_ms)
    assert play.worker.held_requests.bytes == 0
