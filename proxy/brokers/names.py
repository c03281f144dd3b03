"""Host names of brokers: looked up in threads of their own, so that a slow name holds up no other, and remembered."""

import asyncio
import ipaddress
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

_PATIENCE_S: Final = 1.0
"""How long a name that was found before is asked again, before what was found then is used."""
_MOST_AT_ONCE: Final = 64
"""A look-up cannot be cancelled: each takes a thread until the system's resolver gives up."""
_MOST_REMEMBERED: Final = 4000


class Names:
    """Looks up names, one thread for each name that is being asked for."""

    def __init__(self) -> None:
        self._asking: dict[str, Future[tuple[str, ...]]] = {}
        self._known: dict[str, tuple[str, ...]] = {}

    async def ips(self, host: str) -> tuple[str, ...]:
        """Return the addresses of ``host``, in the order of the system's preference. Raises OSError."""
        if is_ip(host):
            return (host,)
        known = self._known.get(host)
        try:
            async with asyncio.timeout(None if known is None else _PATIENCE_S):
                return await asyncio.wrap_future(self._ask(host))
        except (OSError, TimeoutError):
            if known is None:
                raise
            return known

    def _ask(self, host: str) -> Future[tuple[str, ...]]:
        if host in self._asking:
            return self._asking[host]
        if len(self._asking) >= _MOST_AT_ONCE:
            raise OSError(f"{host!a} is not looked up: {_MOST_AT_ONCE} names wait for the resolver already")
        asking = self._asking[host] = Future()
        asking.set_running_or_notify_cancel()  # whoever waits for it cannot cancel it for the others
        threading.Thread(target=self._look_up, args=(host, asking), name="names", daemon=True).start()
        return asking

    def _look_up(self, host: str, asking: Future[tuple[str, ...]]) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # ValueError: a name that IDNA cannot encode
            self._asking.pop(host, None)
            asking.set_exception(error)
            return
        ips = tuple(dict.fromkeys(_with_zone(*where) for *_, where in found))
        if len(self._known) >= _MOST_REMEMBERED:
            with suppress(KeyError, StopIteration, RuntimeError):
                del self._known[next(iter(self._known))]
        self._known[host] = ips
        self._asking.pop(host, None)
        asking.set_result(ips)


NAMES: Final = Names()


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _with_zone(ip: str, _port: int, _flow: int = 0, zone: int = 0) -> str:
    return f"{ip}%{zone}" if zone and "%" not in ip else ip
