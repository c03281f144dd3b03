"""A request whose end is still to come, of which nothing is used but what has come: a claim is not a use."""

from proxy.usage.accounts import Account


class Body:
    """Of a request that is only counted."""

    __slots__ = ("account", "rest_us")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.rest_us = 0.0
        """What is charged to request_percentage when its last byte has come."""

    def count(self, size: int) -> None:
        """Take note of ``size`` bytes that have come; or that have not, after all."""
        self.account.meter.other_bytes += size

    def came(self, size: int, now_ms: int, *, finished: bool) -> bool:  # noqa: ARG002  of a Produce they matter
        """Take what has come; returns whether the rest may come now."""
        self.count(size)
        return True

    def leave(self, missing: int) -> None:
        """Take note that no more comes; ``missing`` bytes never came."""
