"""Checks the steps of a client: to the proxy, through TLS, logged in, and to every advertised broker."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from config.listener import Listener
from config.units import Address
from protocol.locator import Endpoint
from protocol.requests import WHICH_VERSIONS
from proxy.brokers.connection import BrokerConnection, connect
from proxy.brokers.failures import describe
from proxy.brokers.login import LoginError
from proxy.brokers.metadata import host_of, which_brokers
from proxy.brokers.verification import ERRORS
from proxy.checks.brokers import TIMEOUT_S
from proxy.checks.health import AdminLogin, state_of
from proxy.doctor.broker_checks import BrokerState
from proxy.doctor.chain import Chain, look_at_chain, served_chain
from proxy.doctor.client import OF_CLIENT, ClientLogin
from proxy.doctor.findings import DoctorFindings
from proxy.owners.map import OwnersInForce
from quotas.entities import ANONYMOUS

STEPS: Final = ("tls", "versions", "login", "whoami", "advertised")
"""Each makes sense only if those before it have succeeded."""


class StopError(Exception):
    """The result of a check, which its text names, makes the following steps pointless."""


@dataclass(frozen=True, slots=True)
class ClientChecks:
    found: DoctorFindings
    listener: Listener
    bootstrap: Address
    admin: Address
    client: ClientLogin
    brokers: BrokerState
    now_s: float
    owners: OwnersInForce | None = None
    """With several instances: those that own the brokers."""
    login: AdminLogin = AdminLogin()  # noqa: RUF009  immutable

    async def examine(self) -> None:
        try:
            await self._tcp()
            await self._use(await self._tls())
        except StopError as stop:
            self.found.not_tried(str(stop), *STEPS, *(["certificate"] if self.client.context is not None else []))

    async def _use(self, context: ssl.SSLContext | None) -> None:
        try:
            async with asyncio.timeout(2 * TIMEOUT_S), connect(*self._place, context) as connection:
                await self._versions(connection)
                await self._login(connection)
                await self._whoami(connection)
                endpoints = (await which_brokers(connection)).brokers
            await self._advertised(endpoints, context)
        except ERRORS as error:
            fix = "see the logs of the proxy and the brokers at that time"
            check, said = "advertised", f"{self.bootstrap} does not answer Metadata"
            if not self.found.seen("versions"):
                check, said = "versions", f"{self.bootstrap} refuses a second connection"
            self.found.broken(check, said, describe(error, OF_CLIENT), fix)
            raise StopError(check) from None

    # -------------------------------------------------------------------------------------------------- connections

    async def _tcp(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S), connect(*self._place, None):
                self.found.ok("tcp", f"{self.bootstrap} takes connections")
        except (OSError, TimeoutError) as error:
            fix = f"is the proxy running, and does {self.bootstrap} lead to bind {self.listener.bind} of {self._name}?"
            self.found.broken("tcp", f"{self.bootstrap} cannot be reached", describe(error), fix)
            raise StopError("tcp") from None

    async def _tls(self) -> ssl.SSLContext | None:
        """Return the context for the following steps; None without TLS."""
        context, unverified = self.client.context, self.client.unverified
        if (context is None) != (self.listener.tls is None):
            speaks = "speaks plaintext" if self.listener.tls is None else "speaks TLS"
            wanted = "PLAINTEXT or SASL_PLAINTEXT" if self.listener.tls is None else "SSL or SASL_SSL"
            said = f"{self._name} {speaks}, and security.protocol is {self.client.protocol}"
            self.found.fail("tls", said, f"set security.protocol to {wanted}, or choose another listener")
            raise StopError("tls")
        if context is None or unverified is None:
            self.found.ok("tls", "none: this listener is plaintext")
            return None
        chain = await self._handshake(unverified)
        look_at_chain(self.found, chain, self.listener, self.now_s)
        return context if await self._verified(context) else unverified

    async def _handshake(self, unverified: ssl.SSLContext) -> Chain:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                chain = await served_chain(self.bootstrap, unverified)
        except ERRORS as error:
            fix = self._behind_a_load_balancer or "see the proxy's log for why it closed the connection"
            self.found.broken("tls", f"no handshake with {self.bootstrap}", describe(error, OF_CLIENT), fix)
            raise StopError("tls") from None
        self.found.ok("tls", f"{chain.version}, {chain.cipher}")
        return chain

    async def _verified(self, context: ssl.SSLContext) -> bool:
        """Connect with the client's own trusted authorities."""
        try:
            async with asyncio.timeout(TIMEOUT_S), connect(*self._place, context):
                self.found.ok("certificate", f"verified for {self.bootstrap.host}")
        except ERRORS as error:
            said = f"not accepted for {self.bootstrap.host}"
            if self.client.given:
                self.found.fail("certificate", said, describe(error, OF_CLIENT))
                raise StopError("certificate") from None
            self.found.warn("certificate", said, f"{describe(error, OF_CLIENT)}, as your clients have it")
            return False
        return True

    # -------------------------------------------------------------------------------------------------- one session

    async def _versions(self, connection: BrokerConnection) -> None:
        try:
            answer = await connection.ask(WHICH_VERSIONS)
        except ERRORS as error:
            if not self.brokers.reached and self.listener.proxy_protocol is None:
                self.found.skip("versions", "no answer to ApiVersions, because brokers failed")
                raise StopError("brokers") from None
            fix = self._behind_a_load_balancer or f"is there a broker behind {self._name}? See /readyz"
            self.found.broken("versions", "no answer to ApiVersions", describe(error, OF_CLIENT), fix)
            raise StopError("versions") from None
        self.found.ok("versions", f"{int.from_bytes(answer[10:14], 'big')} APIs are offered")

    async def _login(self, connection: BrokerConnection) -> None:
        credentials = self.client.credentials
        if credentials is None:
            if self.listener.authentication == "none":
                self.found.ok("login", "none: this listener demands no SASL")
                return
            said = f"{self._name} demands SASL"
            if self.client.given:
                fix = "set security.protocol to SASL_PLAINTEXT or SASL_SSL, with sasl.mechanism and sasl.jaas.config"
                self.found.fail("login", f"{said}, and security.protocol is {self.client.protocol}", fix)
            else:
                self.found.skip("login", f"{said}: give --command-config with the login of a client")
            raise StopError("login")
        said = f"{credentials.who} by {credentials.mechanism}"
        try:
            await credentials.log_in(connection)
        except LoginError as error:
            self.found.fail("login", f"the broker {error}", "compare sasl.jaas.config with the brokers' users")
            raise StopError("login") from None
        except ERRORS as error:
            self.found.broken("login", said, describe(error), "see the brokers' logs at that time")
            raise StopError("login") from None
        self.found.ok("login", said)

    async def _whoami(self, connection: BrokerConnection) -> None:
        peer = str(Address(*connection.own_address))
        user, why = "", f"no connection from {peer}"
        try:
            for each in (await state_of(self.admin, f"connections?peer={quote(peer)}", self.login))["items"]:
                user, listener = str(each["user"]), str(each["listener"])
        except OSError as error:
            why = describe(error)
        except (KeyError, TypeError):
            why = "answers with something else than an admin port of this version"
        if not user:
            fix = "find out where the admin port of that proxy can be reached"
            self.found.warn("whoami", f"the proxy does not report this client's user: {self.admin}: {why}", fix)
            return
        credentials = self.client.credentials
        expected = user if credentials is None or credentials.username is None else credentials.username
        if credentials is not None and user == ANONYMOUS:
            fix = f"write authentication: sasl at {self._name}, and see the proxy's log"
            self.found.fail("whoami", f"the proxy sees this client as {user} despite its login", fix)
        elif user != expected:
            fix = "quotas apply to the user named here"
            self.found.warn("whoami", f"the proxy sees user {expected} as {user}", fix)
        else:
            self.found.ok("whoami", f"user {user} on listener {listener}")

    # ---------------------------------------------------------------------------------------------------- addresses

    async def _advertised(self, endpoints: Sequence[Endpoint], context: ssl.SSLContext | None) -> None:
        if not endpoints:
            self.found.fail("advertised", "the answer to Metadata names no broker", "see /readyz of the admin port")
        for endpoint in sorted(endpoints):
            told = Address(host_of(endpoint), endpoint.port)
            owners = self.owners
            elsewhere = None if owners is None else owners.elsewhere(self.listener.name, endpoint.node_id)
            wanted = elsewhere or self.listener.advertised(endpoint.node_id)
            broker = f"broker {endpoint.node_id}"
            if wanted is None:
                fix = f"add the node id to brokers of {self._name}"
                self.found.fail("advertised", f"{broker} has no port, clients cannot reach it", fix)
            elif told != wanted and (owners is None or owners.group is None):  # elected owners are not in the file
                fix = "was the running proxy started with this configuration, and is this its listener?"
                self.found.fail("advertised", f"{broker} is advertised as {told} instead of {wanted}", fix)
            else:
                await self._reachable(endpoint.node_id, told, context, silent=endpoint.node_id in self.brokers.silent)

    async def _reachable(self, node_id: int, told: Address, context: ssl.SSLContext | None, *, silent: bool) -> None:
        broker = f"broker {node_id}"
        try:
            async with asyncio.timeout(TIMEOUT_S), connect(told.host, told.port, context) as connection:
                await connection.ask(WHICH_VERSIONS)
        except ERRORS as error:
            if silent:
                self.found.skip("advertised", f"{broker} at {told} does not answer, because brokers failed")
                return
            bound = self.listener.bound(node_id)
            fix = f"does {told} lead from here to {bound} of the proxy, and is the broker behind it up?"
            self.found.broken("advertised", f"{broker} at {told}", describe(error, OF_CLIENT), fix)
        else:
            self.found.ok("advertised", f"{broker} at {told} answers")

    @property
    def _behind_a_load_balancer(self) -> str | None:
        """The fix if the proxy waits for a PROXY header, which no client sends."""
        proxied = self.listener.proxy_protocol
        if proxied is None:
            return None
        networks = ", ".join(map(str, proxied.networks))
        return f"from {networks} the PROXY protocol is required: name the load balancer in --bootstrap"

    @property
    def _place(self) -> tuple[str, int]:
        return self.bootstrap.host, self.bootstrap.port

    @property
    def _name(self) -> str:
        return f"listener {self.listener.name}"
