"""Whether a session's bytes may go to an address now: not before the node there has said who it is.

An address is not a broker: names and IP addresses are given to others. The node is asked once (Metadata with the
proxy's own login), over a connection that then stays open: while it stands, it is the same node, and no session asks
again. Without a login, a broker from 4.4 on is asked by ApiVersions v5 (KIP-1242); at older ones a session logs in, and
has the question put in front of its first other request.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from protocol.errors import Cause, ProtocolError
from protocol.requests import WHICH_VERSIONS, are_you
from proxy.brokers.broker import UNKNOWN, Broker, Look, Refused, Unproven, Verdict, Verified
from proxy.brokers.connection import BrokerConnection, connect, open_connection
from proxy.brokers.login import BrokerLogin, LoginError
from proxy.brokers.metadata import Metadata, which_brokers
from proxy.runtime.tasks import spawn

ERRORS = (OSError, TimeoutError, EOFError, ProtocolError)
_NO_ERROR = 0
_REBOOTSTRAP_REQUIRED = 129


@dataclass(eq=False)
class Verification:
    """Asks the nodes at addresses of one cluster."""

    _context: Callable[[], ssl.SSLContext | None]
    _login: BrokerLogin | None
    _expected: Callable[[Broker], str]
    """Returns the id of the broker's cluster, "" while it is not known."""
    _timeout_s: float
    _can_ask: Callable[[], bool]

    async def verify(self, broker: Broker, *, again: bool = False) -> Verdict:
        """Return whether bytes may go to ``broker``; ``again``: see that the node still answers. Raises OSError,
        TimeoutError, EOFError or ProtocolError if it does not.
        """
        if again or not broker.stands:
            if broker.asking is None:
                broker.asking = spawn(self._ask(broker), "ask a broker who it is")
            if (error := await asyncio.shield(broker.asking)) is not None:
                raise error
        if broker.look is None:
            raise ConnectionResetError("closed the connection")
        return self._judge(broker, broker.look)

    def standing(self, broker: Broker) -> Verdict | None:
        """Return what is known of a node whose connection stands, None if it has to be asked."""
        return self._judge(broker, broker.look) if broker.look is not None and broker.stands else None

    def told(self, broker: Broker, said: Metadata) -> Verdict:
        """Take what the node has said to a session there."""
        if broker.look is None:
            return Refused(Cause.OTHER_NODE, f"{broker} has closed the connection meanwhile")
        broker.look.cluster_id, broker.look.node_ids = said.cluster_id, said.at(broker.host, broker.port)
        return self._judge(broker, broker.look)

    def _judge(self, broker: Broker, look: Look) -> Verdict:
        expected, ip = self._expected(broker), look.ip
        if look.cluster_id is None:
            return Unproven(ip)
        if expected and look.cluster_id != expected:
            who = f"cluster {look.cluster_id}" if look.cluster_id else "a cluster that does not say its id"
            return Refused(Cause.OTHER_CLUSTER, f"{broker} belongs to {who}, not to {expected}")
        if broker.node_id == UNKNOWN or broker.node_id in look.node_ids:
            return Verified(ip)
        if look.node_ids:
            return Refused(Cause.OTHER_NODE, f"{broker} is broker {look.node_ids[0]}, not broker {broker.node_id}")
        return Refused(Cause.OTHER_NODE, f"{broker} does not say that it is broker {broker.node_id}")

    async def _ask(self, broker: Broker) -> Exception | None:
        """Ask the node at the address; return why it does not answer."""
        try:
            async with asyncio.timeout(self._timeout_s):
                look = broker.look
                is_known = look is not None and broker.stands and broker.refused is None
                if look is None or not is_known or not await self._still_answers(broker, look):
                    await self._look_anew(broker)
        except ERRORS as error:
            broker.lose()
            return error
        finally:
            broker.asking = None
        return None

    async def _still_answers(self, broker: Broker, look: Look) -> bool:
        """Ask again over the connection that stands; without a login over another: SASL takes one ApiVersions alone."""
        if not self._can_ask():
            async with connect(broker.host, broker.port, self._context()) as other:
                await other.ask(WHICH_VERSIONS)
            return True
        with suppress(*ERRORS):  # closed for its idleness, or its login has expired (KIP-368)
            await look.connection.ask(WHICH_VERSIONS)
            return True
        return False

    async def _look_anew(self, broker: Broker) -> None:
        address = ""
        while address != str(broker):  # another question may have moved it meanwhile
            address = str(broker)
            broker.lose()
            broker.look = await self._look(broker)

    async def _look(self, broker: Broker) -> Look:
        if self._can_ask():
            with suppress(LoginError):  # its clients have logins of their own
                return await self._answered(broker, self._logged_in)
        return await self._answered(broker, self._without_login)

    async def _answered(self, broker: Broker, ask: Callable[[Broker, BrokerConnection], Awaitable[Look]]) -> Look:
        connection = await open_connection(broker.host, broker.port, self._context())
        try:
            return await ask(broker, connection)
        except BaseException:
            connection.abort()
            raise

    async def _logged_in(self, broker: Broker, connection: BrokerConnection) -> Look:
        if self._login is not None:
            await self._login.perform(connection)
        said = await which_brokers(connection)
        return Look(connection, said.cluster_id, said.at(broker.host, broker.port))

    async def _without_login(self, broker: Broker, connection: BrokerConnection) -> Look:
        look, expected = Look(connection), self._expected(broker)
        if expected and broker.node_id != UNKNOWN:
            answer = await connection.ask(are_you(expected, broker.node_id))
            error_code = int.from_bytes(answer[8:10], "big", signed=True)
            if error_code in (_NO_ERROR, _REBOOTSTRAP_REQUIRED):
                look.cluster_id = expected
                look.node_ids = (broker.node_id,) if error_code == _NO_ERROR else ()
                return look
        await connection.ask(WHICH_VERSIONS)
        return look
