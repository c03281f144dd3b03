"""The group of instances that elects the owners of brokers, as the supervisor starts and stops it."""

import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping

from config.files import read_secret
from config.owners import Owners
from config.settings import Settings
from proxy.brokers.persistent_connection import access_by
from proxy.owners.asking import Asking
from proxy.owners.coordinator import Coordinator
from proxy.owners.member import GroupMember, PutOwners
from proxy.owners.membership import Membership, probe_address
from proxy.owners.messages import EndpointMessage
from proxy.owners.probe import Probe
from proxy.runtime.clock import wall_s


class OwnersGroup:
    """Elects owners between ``start`` and ``leave``. Raises InvalidValue if the secret cannot be read."""

    def __init__(
        self,
        settings: Settings,
        owners: Owners,
        brokers: Callable[[], Awaitable[tuple[Collection[int], Mapping[int, float]]]],
        put_owners: PutOwners,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """``context``: of TLS to the admin ports of other instances."""
        if owners.instance is None or owners.group is None or owners.secret_file is None:
            raise ValueError("owners.group needs instance and secret_file")  # the loader sees to it
        membership = Membership(
            owners,
            owners.instance,
            int(wall_s() * 1_000_000),
            owners.group,
            read_secret(owners.secret_file),
            {each.name: EndpointMessage.of(each.endpoint) for each in settings.listeners},
            probe_address(settings) if owners.probe else None,
        )
        coordinator = Coordinator(access_by(settings.cluster), owners.group)
        self.member = GroupMember(membership, coordinator, brokers, put_owners)
        self.asking = Asking(self.member, context)
        self._probe = Probe(self.member, self.asking.get) if owners.probe else None

    def start(self) -> None:
        """Join; the ports of brokers have to be open."""
        self.member.start()
        if self._probe is not None:
            self._probe.start()

    async def leave(self) -> None:
        """Leave the group, when nobody is served here any more."""
        if self._probe is not None:
            self._probe.stop()
        await self.member.leave()
