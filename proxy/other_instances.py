"""The other instances, as the program asks them and hears of them: in a group, or named in the configuration."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from config.owners import Owners
from proxy.admin.route import RefusedError
from proxy.runtime.http_get import Answer, get_unsigned

if TYPE_CHECKING:
    from proxy.owners.group import OwnersGroup
    from proxy.owners.membership import Status
    from proxy.owners.messages import ChangeMessage
    from proxy.owners.shared_limits import SharedLimits


class OtherInstances:
    """``group`` and ``shared_limits`` are there once the program serves clients, if the configuration has them."""

    def __init__(self, owners: Owners | None) -> None:
        self._owners = owners
        self.group: OwnersGroup | None = None
        self.shared_limits: SharedLimits | None = None

    @property
    def status(self) -> "Status | None":
        """The membership in the group."""
        return None if self.group is None else self.group.member.status

    @property
    def unheard(self) -> int:
        """The number of those whose demand is needed and was not heard for some time."""
        return 0 if self.shared_limits is None else self.shared_limits.unheard

    def addresses(self) -> Mapping[str, tuple[str, int] | None]:
        """Return the other instances, and the admin ports of those in a group."""
        if self.group is not None or self._owners is None:
            return {} if self.group is None else {name: at for name, (_, at) in self.group.member.peers.items()}
        instances = () if self._owners.fixed is None else self._owners.fixed.instances
        return {name: None for name in instances if name != self._owners.instance}

    async def get(self, name: str, at: tuple[str, int], path: str, within_s: float, most_bytes: int) -> Answer:
        """Ask one. Raises OSError."""
        get = get_unsigned if self.group is None else self.group.asking.get
        return await get(name, at, path, within_s, most_bytes)

    def has_signed(self, authorization: str, path: str) -> bool:
        """Whether one of them asks, given ``Authorization`` and the path with its parameters."""
        return self.group is not None and self.group.asking.is_signed(authorization, path)

    def demand(self, asked: Mapping[str, str]) -> bytes | None:
        """Return what is used here of limits of the whole cluster, signed for the one that asks; None without any."""
        return None if self.shared_limits is None else self.shared_limits.tell(asked)

    async def tell(self, what: str, form: Mapping[str, str], who: str, source: str) -> Mapping[str, str | None]:
        """Have them all make a change; return each with why it did not, None if it did."""
        return {} if self.group is None else await self.group.asking.tell(what, form, who, source)

    def hear(self, data: bytes) -> "ChangeMessage":
        """Return a change that another one tells. Raises RefusedError."""
        if self.group is None:
            raise RefusedError(404, "there are no other instances: see owners.group")
        from proxy.owners.messages import MessageError

        try:
            return self.group.asking.hear(data)
        except MessageError as error:
            raise RefusedError(403, str(error)) from None
