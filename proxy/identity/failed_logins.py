"""Logs logins that a broker refused: the claimed user and the address, at most once a minute for each host."""

import structlog

from proxy.runtime.log_lines import OTHERS, OnceAMinute
from proxy.runtime.names import label

log = structlog.get_logger("sluice.logins")


class FailedLogins:
    """Logs the first failed login of a host, then one line with the number of the rest; see ``OnceAMinute``."""

    def __init__(self) -> None:
        self._lines = OnceAMinute(_say_more)

    def log(self, listener: str, mechanism: str, user: str | None, peer: str, now_ms: int) -> None:
        """Log a failed login; ``user`` is the claimed name, None if it could not be read."""
        if self._lines.admits(peer.rpartition(":")[0], OTHERS, now_ms):
            claimed = None if user is None else label(user)
            log.warning("login failed", listener=listener, mechanism=mechanism, claimed_user=claimed, peer=peer)

    def flush(self, now_ms: int) -> None:
        """Log how many more there were, for hosts whose minute is over."""
        self._lines.flush(now_ms)


def _say_more(host: str, number: int) -> None:
    log.warning("more logins failed", of=host, number=number)
