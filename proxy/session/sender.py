"""Whose the requests of one connection are: its user, its broker, and by client-id the account that they belong to."""

from secrets import token_bytes
from typing import Final

from protocol.frames import Head
from protocol.headers import MORE, request_body_offset
from proxy.identity.principal import somebody
from proxy.runtime.names import client_id
from proxy.session.in_flight import InFlight
from proxy.session.serving import Served
from proxy.usage.accounts import Account, Accounts

UNREAD: Final = -2
"""The header has not been read: the client-id is that of the request before."""

AFTER_CORRELATION_ID: Final = 12
"""Where the length of the client-id stands in a request."""
MAX_KEPT_BYTES: Final = 512
"""Of the beginnings that a connection keeps; a longer one (a client-id alone may have 32 KiB) is read each time."""

_UNKNOWN_BROKER: Final = -1
_NO_CLIENT_ID: Final = token_bytes(16)
"""A client-id as no request has it: its length says more than stands there."""
_MOST_FORMER: Final = 64


class Sender:
    """Holds the account of the last request, and those before it to which answers are still to come."""

    __slots__ = (
        "_accounts",
        "_broker",
        "_counted",
        "_exempt",
        "_former",
        "_in_flight",
        "account",
        "client_id_bytes",
        "user",
    )

    def __init__(self, accounts: Accounts, in_flight: InFlight, user: str, exempt: bool) -> None:
        self._accounts = accounts
        self._in_flight = in_flight
        self.user = somebody(user)
        """Whom requests are charged to from now on; never empty, for no quota of users would hold such a one."""
        self._exempt = exempt
        """The connection is, whoever its client is."""
        self._broker = _UNKNOWN_BROKER
        self._counted = False
        """The connection has been counted, for whom it was when it was known first."""
        self._former: tuple[Account, ...] = ()  # a list takes memory while it is empty
        self.account = accounts.nobody
        self.client_id_bytes = _NO_CLIENT_ID
        """How the client-id of ``account`` stands in a request, length and bytes; none where they are many."""

    @property
    def crowded(self) -> bool:
        """So many client-ids have sent what is not answered yet that the next one has to wait."""
        return len(self._former) >= _MOST_FORMER and bool(self._in_flight)

    def find(self, api: Served, chunk: bytes, position: int, head: Head) -> int:
        """Find the account of a client-id that the last request did not have.

        Returns where the request's body begins, or MORE if its header is not all there. Raises ProtocolError if the
        frame ends inside its header.
        """
        body = request_body_offset(api.spec, chunk, position, position + 4 + head[0])
        if body == MORE:
            return MORE
        name = client_id(api.spec, chunk, position)
        self._switch(self._accounts.hold(self._broker, self.user, name, exempt=self._exempt))
        if not self._counted:
            self._counted = True
            self.account.meter.connections_opened += 1
        begin, length = position + AFTER_CORRELATION_ID, 2 + max(head[3], 0)
        if length <= MAX_KEPT_BYTES:
            self.client_id_bytes = chunk[begin : begin + length]
        return body

    def set_broker(self, broker_id: int) -> None:
        """Take that node id for the broker's (-1 while it is not known): quotas are per broker."""
        self._broker = broker_id
        self.client_id_bytes = _NO_CLIENT_ID

    def identify(self, user: str) -> None:
        """Take ``user`` for the sender of what follows; what is in flight stays with whom it was charged to."""
        self.user = somebody(user)
        self.client_id_bytes = _NO_CLIENT_ID

    def forget(self) -> None:
        """Take the next request for nobody's: who sends it is to be proved."""
        self._switch(self._accounts.nobody)

    def leave(self) -> None:
        """Give every account back: the connection is over."""
        self.forget()
        self._give_back_former()

    def _switch(self, account: Account) -> None:
        """Go on with ``account``, which is held already. The one before may still have answers to come."""
        self.client_id_bytes = _NO_CLIENT_ID
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
