"""Any bytes from either side, split anywhere, are forwarded or close the session and are counted; nothing else."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from protocol.headers import MAX_HEADER_BYTES
from proxy.session.exchange import MAX_IN_FLIGHT
from quotas.kinds import QuotaKind
from tests.proxy.playbook import (
    Play,
    authenticate,
    fetch,
    frame,
    handshake,
    heartbeat,
    list_offsets,
    produce,
    request,
)
from tests.proxy.session.mutating import (
    CREATE,
    DELETE,
    GROW,
    OLD_CREATE,
    OLD_DELETE,
    answer,
    create,
    delete,
    grow,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "frames.json").read_text(encoding="utf-8"))
REQUESTS = [bytes.fromhex(case["hex"]) for case in VECTORS["requests"] if len(case["hex"]) < 5000]
RESPONSES = [bytes.fromhex(case["hex"]) for case in VECTORS["responses"] if len(case["hex"]) < 5000]
CHANGES = [
    *(create(number, ("a", 1), ("b", 2), version=version) for number, version in enumerate((CREATE, OLD_CREATE))),
    *(delete(number, "a", "b", version=version) for number, version in enumerate((DELETE, OLD_DELETE))),
    grow(1, ("a", 3)),
] * 20
"""So often that most are among them."""
OUTCOMES = [
    answer(version, number, ("a", 0), ("b", 36))
    for version in (CREATE, OLD_CREATE, DELETE, OLD_DELETE, GROW)
    for number in range(2)
] * 10
LOGINS = [[bytes.fromhex(step["hex"]) for step in case["steps"]] for case in VECTORS["sasl"]]
ROUNDS = 400
CHUNK_BYTES = 100_000


def damaged(random: Random, frames: list[bytes]) -> bytes:
    """Return a few frames in a row, mostly with a byte changed, cut out or put in somewhere."""
    stream = bytearray(b"".join(random.choice(frames) for _ in range(random.randint(1, 4))))
    for _ in range(random.choice((0, 1, 1, 3))):
        at = random.randrange(len(stream))
        stream[at : at + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
    return bytes(stream)


def chunks(random: Random, stream: bytes) -> list[bytes]:
    cuts = sorted({0, len(stream), *(random.randint(0, len(stream)) for _ in range(random.randint(0, 4)))})
    return [stream[start:stop] for start, stop in pairwise(cuts)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fetch_max_version", [15, None])
def test_random_bytes_are_forwarded_or_close_the_session(seed: int, fetch_max_version: int | None) -> None:
    random = Random(seed)
    closed = 0
    for _ in range(ROUNDS):
        play = Play(
            {
                QuotaKind.PRODUCER_BYTE_RATE: 10,
                QuotaKind.CONSUMER_BYTE_RATE: 10,
                QuotaKind.CONTROLLER_MUTATION_RATE: 0.1,
            },
            mode=random.choice(("enforce", "enforce", "shadow")),
            response=random.choice(("mute", "delay", "auto")),
            fetch_max_version=fetch_max_version,
        )
        for chunk in chunks(random, damaged(random, REQUESTS + random.choice(([], CHANGES)))):
            if not play.session.closed and not play.client.paused:
                play.from_client(chunk)
                require_bounds(play)
        for chunk in chunks(random, damaged(random, RESPONSES + random.choice(([], OUTCOMES)))):
            if not play.session.closed and not play.broker.paused:
                play.from_broker(chunk)
                require_bounds(play)
        play.loop.advance(10**7)
        assert bool(play.rejected) == play.session.closed
        closed += play.session.closed
    assert 0 < closed < ROUNDS


def require_bounds(play: Play) -> None:
    """What a session holds is a chunk and what it had to gather, and no more requests than may be in flight."""
    requests, answers, worker = play.session.requests, play.session.answers, play.worker
    assert len(play.session.in_flight) <= MAX_IN_FLIGHT
    assert requests.splitter.held_bytes <= CHUNK_BYTES + max(worker.unauthenticated_request_limit, 2 * MAX_HEADER_BYTES)
    assert answers.splitter.held_bytes <= CHUNK_BYTES + worker.response_limit


GREEDY = [
    request(18, 99, 1, client_id=b""),
    request(18, -1, 1),
    list_offsets(1),
    heartbeat(1),
    produce(1, 0, acks=0),
    produce(1, 9000),
    fetch(1),
    handshake(1, "PLAIN"),
    handshake(1, "GSSAPI", version=0),
    authenticate(1, b"x" * 500),
    frame(b"raw token" * 20),
    request(10, 4, 1, b"\0" + b"\2a" * 400),
    request(3, 12, 1, b"\xe8\x07" + b"\1\0" * 1000, b"c" * 30_000),
    request(3, 12, 1, b"\xff\xff\xff\xff\x0f" + bytes(50)),
    b"\x06\x40\0\0" + bytes(40),
]
"""What a stranger may send as often as it likes."""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("authenticated", [True, False])
def test_greedy_client_that_reads_nothing_stays_within_bounds(seed: int, authenticated: bool) -> None:
    """Any of them, a thousand times, in chunks of any size: bounds hold, and what is not read costs nothing."""
    random = Random(seed)
    for _ in range(30):
        play = Play(authenticated=authenticated)
        blocked = False
        stream = b"".join(random.choices(random.choices(GREEDY, k=3), k=1000))
        while stream and not play.session.closed:
            size = random.choice((1, 50, 5000, CHUNK_BYTES))
            if not play.client.paused:
                play.from_client(stream[:size])
                stream = stream[size:]
                require_bounds(play)
            play.loop.advance(0)
            if not blocked and sum(map(len, play.client.sent)) > CHUNK_BYTES // 10:
                blocked = True
                play.session.blocked("client", True)
            require_bounds(play)
            if play.client.paused:
                break
        play.loop.advance(10**7)
        require_bounds(play)
        assert bool(play.rejected) == play.session.closed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_damaged_logins_authenticate_nobody_without_success(seed: int) -> None:
    """Conversations of SASL, raw ones too, with damage in either direction: nobody is known whom no success named."""
    random = Random(seed)
    closed = known = 0
    for _ in range(ROUNDS):
        play = Play(authenticated=False)
        play.worker.unauthenticated_request_limit = play.session.requests.splitter.limit = 10_000
        for number, step in enumerate(random.choice(LOGINS)):
            from_client = number % 2 == 0
            whole = random.random() < 0.8
            for chunk in chunks(random, step if whole else damaged(random, [step])):
                paused = play.client.paused if from_client else play.broker.paused
                if not play.session.closed and not paused:
                    (play.from_client if from_client else play.from_broker)(chunk)
            if not any(succeeded for _, succeeded in play.outcomes):
                assert play.user == "ANONYMOUS"
        assert bool(play.rejected) == play.session.closed
        closed += play.session.closed
        known += play.user != "ANONYMOUS"
    assert 0 < closed < ROUNDS
    assert 0 < known < ROUNDS
