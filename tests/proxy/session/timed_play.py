"""A session under request_percentage, and a broker that works on each request for so many milliseconds."""

from struct import unpack_from

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.proxy.playbook import (
    Play,
)

REQUEST = QuotaKind.REQUEST_PERCENTAGE
LIMIT = 2.0
"""Percent: of ten seconds, 200 ms are allowed at once."""


def request_quota(percent: float = LIMIT, *, waives: bool = False, **options: str | bool) -> Play:
    """A quota of each user; unless it ``waives``, what seems dear is taken for that from the first one on."""
    policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: percent}})
    play = Play(policy=policy, **options)  # type: ignore[arg-type]  # options of Play
    if not waives:
        no_more_waived(play, percent)
    return play


def no_more_waived(play: Play, percent: float = LIMIT) -> None:
    counter = play.engine.resolve("ANONYMOUS", "app", REQUEST, 1)
    assert counter.waive(percent * 0.4999, 0.05, play.loop.now_ms)


def told(answer: bytes) -> int:
    """The throttle time of an answer that begins with it, as that of ListOffsets and Heartbeat."""
    return int(unpack_from(">i", answer, 8)[0])


def take(play: Play, request: bytes, answer: bytes, ms: int) -> bytes:
    """Have the broker work on a request for so long, and return what the client gets."""
    assert play.from_client(request) == request
    play.loop.advance(ms)
    return play.from_broker(answer)


def charged(play: Play) -> float:
    """Percent-seconds, of all counters."""
    return sum(usage.charged_total for usage in play.engine.usage(play.loop.now_ms) if usage.kind is REQUEST)


def recorded_us(play: Play) -> int:
    """What usage records say."""
    return sum(play.meters[key].use_of(REQUEST).used for key in play.meters)
