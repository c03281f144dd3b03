"""Clients that are never throttled, whatever the quotas say."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from quotas.names import configured_as


class Exemptions:
    """Exempt users, client-ids and networks; one match is enough."""

    __slots__ = ("_client_ids", "_networks", "_users")

    def __init__(
        self,
        users: Iterable[str] = (),
        client_ids: Iterable[str] = (),
        networks: Iterable[IPv4Network | IPv6Network] = (),
    ) -> None:
        self._users = frozenset(map(configured_as, users))
        self._client_ids = frozenset(map(configured_as, client_ids))
        self._networks = tuple(networks)

    def covers(self, user: str, client_id: str) -> bool:
        """Whether the authenticated ``user``, or the claimed ``client_id``, is exempt."""
        return user in self._users or client_id in self._client_ids

    def covers_address(self, host: str) -> bool:
        """Whether the address is in an exempt network."""
        if not self._networks:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


NOBODY: Final = Exemptions()
