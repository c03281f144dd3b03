"""Requests forwarded and not yet answered, as the two sides of a session share them."""

from typing import Final

from protocol.sasl import SASL_AUTHENTICATE
from protocol.table import SPECS, key_version
from proxy.session.serving import TELL, Served
from proxy.usage.accounts import Account

# correlation id · what the answer needs (serving) · how the version is served · throttle time of the
# request · when that is over · whose it is · when the request went, or since when its answer is held, or SEEN ·
# how long the request was held before it went. A tuple, because one is made for every request.
Entry = tuple[int, int, Served, int, int, Account, int, int]
CORRELATION_ID: Final = 0
ACTIONS: Final = 1
API: Final = 2
ACCOUNT: Final = 5
CAME_MS: Final = 6
HELD_MS: Final = 7
SEEN: Final = -1
"""The answer has begun to come, and has been counted. What is below that is minus the moment since which it is held."""
InFlight = list[Entry]
"""Requests forwarded and not yet answered, oldest first: brokers answer in order. acks=0 leaves no entry.

A list, because few are in flight: an empty deque takes 760 bytes of each session."""

MAX_IN_FLIGHT: Final = 1024
"""A broker works on one request of a connection at a time, and the Java client sends five ahead."""

RAW_TOKEN: Final = Served(SPECS[key_version(SASL_AUTHENTICATE, 0)], on_request=0, on_answer=0, delayed=False)
"""How a SASL token without a header (SaslHandshake v0) stands here; its answer has none either."""


def expect(correlation_id: int, api: Served, account: Account, now_ms: int, throttle_ms: int = 0) -> Entry:
    """Return what the answer to a request is to be met with; with ``throttle_ms``, which it is to tell."""
    actions = api.on_answer | TELL if throttle_ms else api.on_answer
    return (correlation_id, actions, api, throttle_ms, now_ms + throttle_ms, account, now_ms, 0)


def tell(entry: Entry, throttle_ms: int, now_ms: int) -> Entry:
    """Return ``entry`` with a throttle time that its answer is to tell."""
    correlation_id, actions, api, _, _, account, came_ms, held_ms = entry
    return (correlation_id, actions | TELL, api, throttle_ms, now_ms + throttle_ms, account, came_ms, held_ms)
