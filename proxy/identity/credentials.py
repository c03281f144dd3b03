"""Names for clients whose mechanism shows no user, but a credential that tells clients apart.

Such a name is a pseudo principal, ``sluice:<mechanism>:<credential>``: it identifies a client across connections
without naming its user. A client that can obtain new credentials at will would get a new counter with each, so the
number of names per address and in all is limited. Clients beyond the limit share ``sluice:<mechanism>``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.identity.principal import of_mechanism
from quotas.networks import network_of_peer

MOST: Final = 1024
"""Limit of names per listener."""
KEPT_MS: Final = 3_600_000
"""How long a name is kept after its last connection; otherwise each connection could bring another one."""


@dataclass(slots=True)
class _NamedCredential:
    address: str
    connections: int
    left_ms: int


@dataclass(eq=False)
class Credentials:
    """The named credentials of one listener."""

    _most_of_address: int
    _clock: Callable[[], int]
    _on_shared: Callable[[str, bool], None]
    """(mechanism, has a credential) → None: called for each login that shares its mechanism's counter."""
    _named: dict[str, _NamedCredential] = field(default_factory=dict)

    def user(self, mechanism: str, credential: str | None, peer: str) -> str:
        """Return the user of an authenticated client at ``peer``. Its connection has to give it back."""
        if credential is None:
            self._on_shared(mechanism, False)
            return of_mechanism(mechanism)
        user = of_mechanism(mechanism, credential)
        named = self._named.get(user) or self._take(user, network_of_peer(peer))
        if named is None:
            self._on_shared(mechanism, True)
            return of_mechanism(mechanism)
        named.connections += 1
        return user

    def give_back(self, user: str) -> None:
        """Note that a connection of ``user`` is closed, if the user is one of these."""
        named = self._named.get(user)
        if named is not None:
            named.connections -= 1
            named.left_ms = self._clock()

    def _take(self, user: str, address: str) -> _NamedCredential | None:
        """Name a client, if there is room once those that left long ago are forgotten."""
        since_ms = self._clock() - KEPT_MS
        self._named = {who: each for who, each in self._named.items() if each.connections or each.left_ms >= since_ms}
        of_address = sum(each.address == address for each in self._named.values())
        if of_address >= self._most_of_address or len(self._named) >= MOST:
            return None
        named = self._named[user] = _NamedCredential(address, 0, 0)
        return named
