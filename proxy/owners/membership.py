"""The membership of an instance in the group that elects owners: settings, state, and its address for others."""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

from config.owners import Owners
from config.settings import Settings
from config.units import EVERY_INTERFACE, Address
from proxy.owners.messages import EndpointMessage


class MemberState(StrEnum):
    """The state of the membership; the map in force is that of before in all but ``ALONE`` and ``FENCED``."""

    ALONE = "alone"
    """No map was ever known."""
    JOINING = "joining"
    MEMBER = "member"
    FROZEN = "frozen"
    """The coordinator does not answer."""
    FENCED = "fenced"
    """The coordinator does not know this instance any more, or refuses it."""


@dataclass(frozen=True, slots=True)
class Membership:
    settings: Owners
    instance: str
    boot: int
    group: str
    secret: bytes
    places: dict[str, EndpointMessage]
    """Its addresses, by listener."""
    probe: Address | None


@dataclass(frozen=True, slots=True)
class Status:
    """The membership, for metrics and the state API."""

    instance: str
    boot: int
    state: MemberState
    epoch: int
    owners: dict[int, str]
    heartbeat_age_s: float
    gained: int
    """Brokers that have come to this instance since the start."""
    lost: int
    error: str | None


def probe_address(settings: Settings) -> Address | None:
    """Return the admin port, where others ask whether this instance is alive; None if they do not reach it."""
    bind, told = settings.admin.bind, settings.listeners[0].advertise.host
    if bind.host in EVERY_INTERFACE:
        return Address(told, bind.port)
    return None if is_loopback(bind.host) and not is_loopback(told) else bind


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
