"""TLS of the admin port: to serve with, and to ask those of other instances."""

import asyncio
from typing import Final

import structlog

from config.admin import Admin
from config.listener import ClientTls
from protocol.errors import ProtocolError
from proxy.checks.health import context_of_others
from proxy.edge.tls import ListenerTls
from quotas.entities import ANONYMOUS

log = structlog.get_logger("sluice.admin")

NAME: Final = "admin port"
"""In the metric of certificates, where listeners have their names."""


class AdminTls(ListenerTls):
    """TLS by the ``settings`` of ``admin``. Raises OSError if files cannot be loaded; later, the old ones stay."""

    def __init__(self, admin: Admin, settings: ClientTls) -> None:
        super().__init__(settings, None)
        self._admin = admin
        self.of_others = context_of_others(admin)
        """Verifies other instances."""
        self.files = (*self.files, *([] if admin.ca is None else [admin.ca]))

    async def load(self) -> None:
        try:
            await super().load()
            self.of_others = await asyncio.to_thread(context_of_others, self._admin)
        except OSError as error:
            log.error("certificate of the admin port not loaded, the old one stays in force", error=str(error))
        else:
            log.info("certificate of the admin port loaded", files=[str(path) for path in self.files])

    def name_of(self, transport: asyncio.BaseTransport | None) -> str | None:
        """Return the name in the certificate that a client has shown; None without one."""
        tls = None if transport is None else transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        try:
            name = self.user_of(tls)
        except ProtocolError:
            return None
        return None if name == ANONYMOUS else name


def is_over_tls(transport: asyncio.BaseTransport | None) -> bool:
    return transport is not None and transport.get_extra_info("ssl_object") is not None


def tls_of(admin: Admin) -> AdminTls | None:
    """Return the TLS of the admin port, if it has any. Raises OSError."""
    return None if admin.tls is None else AdminTls(admin, admin.tls)
