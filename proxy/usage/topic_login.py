"""Connection settings of the usage topic's brokers: TLS and login, from the files as they are at each attempt.

Slow work is done in a thread, and once per change of the files: an unavailable topic is retried every few seconds, and
no client may be delayed by that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from config.cluster import Cluster as ClusterSettings
from config.units import Address
from proxy.brokers.cluster import Cluster, NoAnswerError
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.login import read_password
from proxy.brokers.tls import BrokerTls
from proxy.runtime.files import FileWatch
from proxy.usage.shipping import SinkError

T = TypeVar("T")


class Brokers:
    """The brokers, as the proxy's own login reaches them."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._tls: BrokerTls | None = None
        self._watch: FileWatch | None = None

    async def login(self) -> dict[str, Any]:
        """Return the arguments of aiokafka's clients; renewed files take effect. Raises OSError if a file cannot be
        read.
        """
        tls, sasl = await self._renewed(), self._settings.sasl
        options: dict[str, Any] = {
            "bootstrap_servers": [str(address) for address in self._settings.bootstrap],
            "client_id": "sluice-usage",
            "request_timeout_ms": 10_000,
            "retry_backoff_ms": 500,
            "ssl_context": None if tls is None else tls.context,
            "security_protocol": f"{'SASL_' if sasl else ''}{'SSL' if tls else 'PLAINTEXT'}",
        }
        if sasl is not None:
            options["sasl_mechanism"] = sasl.mechanism
            options["sasl_plain_username"] = sasl.username
            options["sasl_plain_password"] = await asyncio.to_thread(read_password, sasl.password_file)
        return options

    async def ask(self, question: Callable[[BrokerConnection], Awaitable[T]], at: Address | None = None) -> T:
        """Ask a usable broker, or the one at an address.

        Raises SinkError with the cause and the fix, and OSError as ``login``.
        """
        settings = self._settings if at is None else self._settings.model_copy(update={"bootstrap": (at,)})
        cluster = Cluster(
            settings.name,
            settings,
            on_broker=lambda _: None,
            refresh_s=settings.refresh_s,
            connect_timeout_s=settings.connect_timeout_s,
            tls=await self._renewed(),
        )
        try:
            return await cluster.ask(question)
        except NoAnswerError as error:
            raise SinkError(f"no broker can be used: {error}") from error

    async def _renewed(self) -> BrokerTls | None:
        """Return the TLS context for the current files; broken files leave the old one in use."""
        settings = self._settings.tls
        if settings is None:
            return None
        if self._tls is None:
            paths = [path for path in (settings.ca, settings.certificate, settings.key) if path is not None]
            watch = FileWatch(paths, self._load)  # before the files are read: a later change is noticed
            self._tls = await asyncio.to_thread(BrokerTls, settings)
            self._watch = watch
        elif self._watch is not None:
            await self._watch.check()
        return self._tls

    async def _load(self) -> None:
        if self._tls is not None:
            await self._tls.load()
