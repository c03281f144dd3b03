"""A session under request_percentage, where a ListOffsets, a Heartbeat and the like cost what a test says."""

from struct import unpack_from

from config.settings import RequestCosts as Prices
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.proxy.playbook import Play

REQUEST = QuotaKind.REQUEST_PERCENTAGE
LIMIT = 2.0
"""Percent: of ten seconds, 200 ms are allowed at once."""


def request_quota(percent: float = LIMIT, *, other_us: float = 40.0, **options: str | bool) -> Play:
    """A quota of each user; a Fetch, a ListOffsets, a Heartbeat and the like cost ``other_us``."""
    policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: percent}})
    prices = Prices(other_us=other_us, fetch_us=other_us)
    return Play(policy=policy, prices=prices, **options)  # type: ignore[arg-type]  # options of Play


def told(answer: bytes) -> int:
    """The throttle time of an answer that begins with it, as that of ListOffsets and Heartbeat."""
    return int(unpack_from(">i", answer, 8)[0])


def take(play: Play, request: bytes, answer: bytes, ms: int = 0) -> bytes:
    """Have the broker answer after so long, and return what the client gets."""
    assert play.from_client(request) == request
    play.loop.advance(ms)
    return play.from_broker(answer)


def charged(play: Play) -> float:
    """Percent-seconds, of all counters."""
    return sum(usage.charged_total for usage in play.engine.usage(play.loop.now_ms) if usage.kind is REQUEST)


def recorded_us(play: Play) -> int:
    """What usage records say."""
    return sum(play.meters[key].use_of(REQUEST).used for key in play.meters)
