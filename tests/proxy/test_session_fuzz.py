"""Any bytes from either side, split anywhere, are forwarded or close the session and are counted; nothing else."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from quotas.kinds import QuotaKind
from tests.proxy.playbook import Play

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "frames.json").read_text(encoding="utf-8"))
REQUESTS = [bytes.fromhex(case["hex"]) for case in VECTORS["requests"] if len(case["hex"]) < 5000]
RESPONSES = [bytes.fromhex(case["hex"]) for case in VECTORS["responses"] if len(case["hex"]) < 5000]
LOGINS = [[bytes.fromhex(step["hex"]) for step in case["steps"]] for case in VECTORS["sasl"]]
ROUNDS = 400


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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fetch_max_version", [15, None])
def test_any_bytes(seed: int, fetch_max_version: int | None) -> None:
    random = Random(seed)
    closed = 0
    for _ in range(ROUNDS):
        play = Play(
            {QuotaKind.PRODUCER_BYTE_RATE: 10, QuotaKind.CONSUMER_BYTE_RATE: 10},
            response=random.choice(("mute", "delay", "auto")),
            fetch_max_version=fetch_max_version,
        )
        for chunk in chunks(random, damaged(random, REQUESTS)):
            if not play.session.closed and not play.client.paused:
                play.from_client(chunk)
        for chunk in chunks(random, damaged(random, RESPONSES)):
            if not play.session.closed and not play.broker.paused:
                play.from_broker(chunk)
        play.loop.advance(10**7)
        assert bool(play.rejected) == play.session.closed
        closed += play.session.closed
    assert 0 < closed < ROUNDS


@pytest.mark.parametrize("seed", range(4))
def test_any_login(seed: int) -> None:
    """Conversations of SASL, raw ones too, with damage in either direction: nobody is known whom no success named."""
    random = Random(seed)
    closed = known = 0
    for _ in range(ROUNDS):
        play = Play(authenticated=False)
        play.rules.unauthenticated_request_limit = play.session.requests.splitter.limit = 10_000
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
