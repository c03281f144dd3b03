"""Requests under way: forwarded to the broker, and not yet answered to the last byte."""

from typing import Final

from protocol.sasl import SASL_AUTHENTICATE
from protocol.table import SPECS, key_version
from proxy.session.serving import TELL, Served
from proxy.usage.accounts import Account

MAX_IN_FLIGHT: Final = 1024
"""A broker works on one request of a connection at a time, and the Java client sends five ahead."""

RAW_TOKEN: Final = Served(SPECS[key_version(SASL_AUTHENTICATE, 0)], on_request=0, on_answer=0, delayed=False)
"""A SASL token without a header (SaslHandshake v0); its answer has none either."""


class Body:
    """The rest of a request whose end is still to come. It uses what has come: a claim is not a use."""

    __slots__ = ("account", "rest_us")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.rest_us = 0.0
        """The cost that is charged to request_percentage when its last byte has come."""

    def count(self, size: int) -> None:
        """Count ``size`` bytes that have come; negative: that have not, after all."""
        self.account.meter.other_bytes += size

    def came(self, size: int, now_ms: int, *, finished: bool) -> bool:  # noqa: ARG002  of a Produce they matter
        """Take bytes that have come; returns whether the rest may come now."""
        self.count(size)
        return True

    def leave(self, missing: int) -> None:
        """Note that no more comes; ``missing`` bytes never came."""


class Exchange:
    """A request under way and its answer. A request with acks=0 has none."""

    __slots__ = (
        "account",
        "actions",
        "answer_held_since_ms",
        "api",
        "correlation_id",
        "has_begun",
        "held_ms",
        "sent_ms",
        "throttle_ms",
        "throttled_until_ms",
    )

    def __init__(
        self, correlation_id: int, api: Served, account: Account, sent_ms: int, actions: int, throttle_ms: int = 0
    ) -> None:
        self.correlation_id = correlation_id
        self.api = api
        self.account = account
        """The account that is charged, whoever the client is by the time of the answer."""
        self.sent_ms = sent_ms
        self.actions = actions
        """Flags: what has to be done with the answer (``serving``)."""
        self.throttle_ms = throttle_ms
        """The throttle time that the answer tells, if ``actions`` say so."""
        self.throttled_until_ms = sent_ms + throttle_ms
        self.held_ms = 0
        """How long the proxy held the request before it went."""
        self.has_begun = False
        """The answer has begun to come, and has been counted."""
        self.answer_held_since_ms: int | None = None
        """Since when the proxy holds the answer."""

    def tell(self, throttle_ms: int, now_ms: int) -> None:
        """Let the answer tell a throttle time that begins now."""
        self.actions |= TELL
        self.throttle_ms = throttle_ms
        self.throttled_until_ms = now_ms + throttle_ms

    def hold_answer(self, since_ms: int | None) -> None:
        """Note that the answer has begun to come and is held, since that moment if the proxy is the reason."""
        self.has_begun = True
        if self.answer_held_since_ms is None:
            self.answer_held_since_ms = since_ms


InFlight = list[Exchange]
"""Requests under way, oldest first: brokers answer in order. A list, because few are in flight: an empty deque takes
760 bytes of each session."""


def expect(correlation_id: int, api: Served, account: Account, now_ms: int, throttle_ms: int = 0) -> Exchange:
    """Return the exchange of a request that goes now; with ``throttle_ms`` its answer tells that."""
    actions = api.on_answer | TELL if throttle_ms else api.on_answer
    return Exchange(correlation_id, api, account, now_ms, actions, throttle_ms)
