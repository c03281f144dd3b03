"""The logins of browsers, which a restart ends, and the networks that gave wrong tokens."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from secrets import token_urlsafe
from typing import Final, NamedTuple

from proxy.runtime.clock import monotonic_s, wall_s

LOGIN_S: Final = 8 * 3600
_MOST_LOGINS: Final = 100
"""Beyond that, the oldest ends."""
_FREE: Final = 5
"""Wrong tokens that cost no time: people mistype, and an old token may be in several places."""
_LONGEST_S: Final = 60.0
_FORGET_S: Final = 600.0
_MOST_GUESSERS: Final = 1000
"""Beyond that, the network that was wrong first is forgotten."""


class Login(NamedTuple):
    until_s: float
    name: str
    token: bytes
    """The digest of the token that it was given for."""

    def is_for(self, token: bytes) -> bool:
        return sha256(token).digest() == self.token


@dataclass(eq=False)
class Logins:
    """By the digest of their ids: whoever reads this memory cannot use them."""

    _clock: Callable[[], float] = wall_s
    _logins: dict[bytes, Login] = field(default_factory=dict)

    def begin(self, name: str, token: bytes) -> str:
        """Return the id of a new login, given for the token of ``name``."""
        while len(self._logins) >= _MOST_LOGINS:
            del self._logins[next(iter(self._logins))]
        login_id = token_urlsafe(32)
        self._logins[_digest(login_id)] = Login(self._clock() + LOGIN_S, name, sha256(token).digest())
        return login_id

    def end(self, login_id: str) -> None:
        self._logins.pop(_digest(login_id), None)

    def find(self, login_id: str) -> Login | None:
        """Return a login; None if there is none, or its time is over."""
        login = self._logins.get(_digest(login_id))
        if login is not None and login.until_s <= self._clock():
            self.end(login_id)
            return None
        return login


def _digest(login_id: str) -> bytes:
    return sha256(login_id.encode(errors="replace")).digest()


class _Wrong(NamedTuple):
    number: int
    at_s: float

    @property
    def until_s(self) -> float:
        """When the next token is looked at."""
        beyond = self.number - _FREE
        return self.at_s + min(2.0 ** min(beyond, 10), _LONGEST_S) if beyond >= 0 else self.at_s


@dataclass(eq=False)
class Guesses:
    """Wrong tokens; after five, each next one doubles the time until another token is looked at, up to a minute."""

    _clock: Callable[[], float] = monotonic_s
    _wrong: dict[str, _Wrong] = field(default_factory=dict)

    def wait_s(self, network: str) -> int:
        """Return after how many seconds a token from there is looked at; 0: now."""
        wrong = self._wrong.get(network)
        return 0 if wrong is None else max(0, ceil(wrong.until_s - self._clock()))

    def count(self, network: str) -> None:
        now_s = self._clock()
        before = self._wrong.pop(network, _Wrong(0, now_s))
        if len(self._wrong) >= _MOST_GUESSERS:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[network] = _Wrong(1 if now_s - before.at_s > _FORGET_S else before.number + 1, now_s)
