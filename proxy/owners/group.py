"""The group of instances that elects the owners of brokers, as the supervisor starts and stops it."""

import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping

from config.files import read_secret
from config.owners import Owners
from config.settings import Settings
from proxy.brokers.persistent_connection import access_by
from proxy.owners.asking import Asking
from proxy.owners.changes import GroupChanges
from proxy.owners.coordinator import Coordinator
from proxy.owners.exchange import AskDemands, Exchange, PutShares
from proxy.owners.member import GroupMember, Own
from proxy.owners.membership import Membership, Status
from proxy.owners.messages import EndpointMessage
from proxy.owners.probe import Probe
from proxy.owners.settings import probe_address
from proxy.runtime.clock import wall_s


class OwnersGroup:
    """Elects owners between ``start`` and ``leave``. Raises InvalidValue if the secret cannot be read."""

    def __init__(
        self,
        settings: Settings,
        owners: Owners,
        brokers: Callable[[], Awaitable[Collection[int]]],
        load: Callable[[], Mapping[int, float]],
        own: Own,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """``context``: of TLS to the admin ports of other instances."""
        if owners.instance is None or owners.group is None or owners.secret_file is None:
            raise ValueError("owners.group needs instance and secret_file")  # the loader sees to it
        membership = Membership(
            owners.instance,
            int(wall_s() * 1_000_000),
            owners.group,
            read_secret(owners.secret_file),
            owners.session_s,
            owners.heartbeat_s,
            owners.weight,
            {each.name: EndpointMessage.of(each.endpoint) for each in settings.listeners},
            probe_address(settings) if owners.probe else None,
            serves_alone=owners.before_first == "serve",
            stops_cut_off=owners.when_cut_off == "stop",
        )
        coordinator = Coordinator(access_by(settings.cluster), owners.group)
        self._member = GroupMember(membership, coordinator, brokers, load, own)
        self.asking = Asking(self._member, context)
        self.changes = GroupChanges(self._member, self.asking)
        self._probe = Probe(self._member, self.asking.get) if owners.probe else None

    def start(self) -> None:
        """Join; the ports of brokers have to be open."""
        self._member.start()
        if self._probe is not None:
            self._probe.start()

    async def step_down(self) -> None:
        """Have all brokers owned by others, before they are drained here."""
        await self._member.step_down()

    async def leave(self) -> None:
        """Leave the group, when nobody is served here any more."""
        if self._probe is not None:
            self._probe.stop()
        await self._member.leave()

    @property
    def status(self) -> Status:
        return self._member.status

    @property
    def why_not_ready(self) -> str | None:
        return self._member.why_not_ready

    @property
    def others(self) -> dict[str, tuple[str, int] | None]:
        """The admin port of each other instance, None where it is not known."""
        return {name: at for name, (_, at) in self._member.peers.items()}

    def exchange(self, demands: AskDemands, share: PutShares, is_needed: Callable[[], bool]) -> Exchange:
        """Return the exchange of demand with the other instances."""
        member, status = self._member, self._member.status
        return Exchange(
            demands,
            share,
            is_needed,
            status.instance,
            status.boot,
            member.signing,
            lambda: member.peers,
            lambda: member.member_id,
            self.asking.get,
        )
