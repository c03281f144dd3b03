"""The address where others ask whether an instance is alive."""

from ipaddress import ip_address

from config.settings import Settings
from config.units import EVERY_INTERFACE, Address


def probe_address(settings: Settings) -> Address | None:
    """Return the admin port as other instances reach it; None if they do not."""
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
