"""Logins that a broker refused, in the log: who claimed to be whom, and from where; once a minute for each host."""

import structlog

from proxy.runtime.names import label
from proxy.runtime.once_a_minute import OTHERS, OnceAMinute

log = structlog.get_logger("sluice.logins")


class FailedLogins:
    """Of the logins that fail from one host one line is written, then one that counts the rest; see ``OnceAMinute``."""

    def __init__(self) -> None:
        self._lines = OnceAMinute(_say_more)

    def note(self, listener: str, mechanism: str, user: str | None, peer: str, now_ms: int) -> None:
        """Log one; ``user`` is what the client claimed to be, None where that could not be read."""
        if self._lines.admits(peer.rpartition(":")[0], OTHERS, now_ms):
            claimed = None if user is None else label(user)
            log.warning("login failed", listener=listener, mechanism=mechanism, claimed_user=claimed, peer=peer)

    def flush(self, now_ms: int) -> None:
        """Write how many more there were, where the minute is over."""
        self._lines.flush(now_ms)


def _say_more(host: str, number: int) -> None:
    log.warning("more logins failed", of=host, number=number)
