"""The logins of browsers: this process knows them, so a restart ends them all."""

from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final, NamedTuple

from proxy.runtime.clock import wall_s

LOGIN_S: Final = 8 * 3600
_MOST: Final = 100
"""Beyond that, the oldest ends."""


class _Login(NamedTuple):
    until_s: float
    name: str
    token: bytes
    """The digest of the token that it was given for."""


class Logins:
    """By the digest of their ids: whoever reads this memory cannot use them."""

    def __init__(self, clock: Callable[[], float] = wall_s) -> None:
        self._clock = clock
        self._logins: dict[bytes, _Login] = {}

    def begin(self, name: str, token: bytes) -> str:
        """Return the id of a new login, given for the token of ``name``."""
        while len(self._logins) >= _MOST:
            del self._logins[next(iter(self._logins))]
        login_id = token_urlsafe(32)
        self._logins[_digest(login_id)] = _Login(self._clock() + LOGIN_S, name, sha256(token).digest())
        return login_id

    def end(self, login_id: str) -> None:
        """Forget a login."""
        self._logins.pop(_digest(login_id), None)

    def name_of(self, login_id: str) -> str | None:
        """Return whose login it is; None if it is none, or its time is over."""
        login = self._logins.get(_digest(login_id))
        if login is None:
            return None
        if login.until_s <= self._clock():
            self.end(login_id)
            return None
        return login.name

    def is_of(self, login_id: str, token: bytes) -> bool:
        """Whether a login was given for the token of now; if not, it is over."""
        login = self._logins.get(_digest(login_id))
        if login is not None and sha256(token).digest() == login.token:
            return True
        self.end(login_id)
        return False


def _digest(login_id: str) -> bytes:
    return sha256(login_id.encode(errors="replace")).digest()
