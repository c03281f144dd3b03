"""The client of a connection's requests: its user, its broker, and by client-id the account that is charged."""

from secrets import token_bytes
from typing import Final

from protocol.headers import MORE, request_body_offset
from proxy.identity.principal import somebody
from proxy.runtime.names import client_id
from proxy.session.exchange import AFTER_CORRELATION_ID, MAX_KEPT_BYTES, NONE, InFlight, Request, RequestPrefix
from proxy.usage.accounts import Account, Accounts
from quotas.fair_queue import Path
from quotas.networks import network_of_peer

_NO_CLIENT_ID: Final = token_bytes(16)
"""A client-id that no request has: it is shorter than its length says."""
_MOST_FORMER: Final = 64


class ClientIdentity:
    """Holds the account of the last request, and those before it to which answers are still to come."""

    __slots__ = (
        "_accounts",
        "_counted",
        "_exempt",
        "_former",
        "_in_flight",
        "_peer",
        "account",
        "broker",
        "client_id_bytes",
        "coordinates",
        "produce_prefix",
        "user",
    )

    def __init__(self, accounts: Accounts, in_flight: InFlight, peer: str, user: str, exempt: bool) -> None:
        self._accounts = accounts
        self._in_flight = in_flight
        self._peer = peer
        self.user = somebody(user)
        """The user that requests are charged to from now on; never empty: no user quota holds for an empty name."""
        self._exempt = exempt
        """The connection is, whoever its client is."""
        self.broker = -1
        """The node id of the broker, -1 while it is not known."""
        self._counted = False
        """The connection has been counted, for whom it was when it was known first."""
        self._former: tuple[Account, ...] = ()  # a list takes memory while it is empty
        self.account = accounts.nobody
        self.client_id_bytes = _NO_CLIENT_ID
        """The client-id of ``account`` as in a request, length and bytes; none where they are many."""
        self.produce_prefix = RequestPrefix()
        """The beginning of the last Produce of ``account``."""
        self.coordinates = False
        """The connection carries group or transaction traffic."""

    @property
    def crowded(self) -> bool:
        """So many client-ids have sent what is not answered yet that the next one has to wait."""
        return len(self._former) >= _MOST_FORMER and bool(self._in_flight)

    def path(self, account: Account) -> Path:
        """Return the path of an account among the clients that take turns in a counter's queue.

        Turns are of users, of one user's addresses, and of one address's client-ids. Last comes what is made up most
        easily: many client-ids from one address have one address's turns, and so have all IPv6 addresses of one
        customer.
        """
        return account.key.user, network_of_peer(self._peer), account.key.client_id

    def find(self, request: Request) -> bool:
        """Find the account of a client-id that the last request did not have, and where the request's body begins.

        Returns False if its header is not all there. Raises ProtocolError if the frame ends inside its header.
        """
        spec, chunk, position = request.api.spec, request.chunk, request.position
        body = request_body_offset(spec, chunk, position, request.end)
        if body == MORE:
            return False
        request.body = body
        name = client_id(spec, chunk, position)
        self._switch(self._accounts.hold(self.broker, self.user, name, exempt=self._exempt))
        if not self._counted:
            self._counted = True
            self.account.meter.connections_opened += 1
        if request.client_id_bytes <= MAX_KEPT_BYTES:
            begin = position + AFTER_CORRELATION_ID
            self.client_id_bytes = chunk[begin : begin + request.client_id_bytes]
        return True

    def set_broker(self, broker_id: int) -> None:
        """Take that node id for the broker's: quotas are per broker."""
        self.broker = broker_id
        self._read_anew()

    def identify(self, user: str) -> None:
        """Take ``user`` for the identity of what follows; what is in flight stays with whom it was charged to."""
        self.user = somebody(user)
        self._read_anew()

    def _read_anew(self) -> None:
        """Find the account of the next request, whatever its client-id is."""
        self.client_id_bytes = _NO_CLIENT_ID
        self.produce_prefix.number = NONE

    def forget(self) -> None:
        """Charge the next request to nobody: its client has not proved who it is."""
        self._switch(self._accounts.nobody)

    def leave(self) -> None:
        """Give every account back: the connection is over."""
        self.forget()
        self._give_back_former()

    def _switch(self, account: Account) -> None:
        """Go on with ``account``, which is held already. The one before may still have answers to come."""
        self._read_anew()
        if self._former and not self._in_flight:
            self._give_back_former()
        before = self.account
        before.meter.connections -= 1
        if before is not self._accounts.nobody:
            if self._in_flight:
                self._former += (before,)
            else:
                self._accounts.give_back(before)
        account.meter.connections += 1
        self.account = account

    def _give_back_former(self) -> None:
        for account in self._former:
            self._accounts.give_back(account)
        self._former = ()
