"""Settings of an instance in its group: the secret, and the address where others ask whether it is alive."""

from ipaddress import ip_address
from pathlib import Path
from typing import Final

from config.files import read_file
from config.problems import InvalidValue
from config.settings import Settings
from config.units import EVERY_INTERFACE, Address

_SHORTEST: Final = 16


def read_secret(path: Path) -> bytes:
    """Return the secret in a file. Raises InvalidValue."""
    try:
        secret = read_file(path).strip()
    except OSError as error:
        raise InvalidValue(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if len(secret) < _SHORTEST:
        said = f"{path} has {len(secret)} bytes, and can be guessed" if secret else f"{path} is empty"
        raise InvalidValue(said, "write one into it: openssl rand -hex 32")
    return secret


def probe_address(settings: Settings) -> Address | None:
    """Return the admin port as other instances reach it; None if they do not."""
    bind, told = settings.admin.bind, settings.listeners[0].advertise.host
    if bind.host in EVERY_INTERFACE:
        return Address(told, bind.port)
    return None if _is_loopback(bind.host) and not _is_loopback(told) else bind


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
