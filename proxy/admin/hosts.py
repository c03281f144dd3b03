"""The names of the admin port that are accepted in Host.

By DNS rebinding a foreign web page makes a browser send requests here under the page's own host name.
"""

import ipaddress
import socket
from collections.abc import Iterable


class Hosts:
    """``hosts``: names besides addresses, localhost and the machine's own name. Those that clients are told are the
    operator's own, and nobody else's page is found under them.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_bare(host) for host in (*hosts, "localhost", socket.gethostname()))

    def why_not(self, host: str) -> str | None:
        """Return why a value of Host is refused; None if it is not."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        name = _bare(name.removeprefix("[").removesuffix("]"))
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if name not in self._hosts:
                return f"asked for as {host!a}: use an address, or add the name to admin.hosts, and restart"
        return None


def _bare(host: str) -> str:
    return host.casefold().removesuffix(".")
