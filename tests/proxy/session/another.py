"""One more connection of the client of a play."""

from protocol.errors import ProtocolError
from proxy.session.session import Session
from proxy.usage.accounts import Accounts
from tests.proxy.playbook import FakeWire, Play


class Another:
    """One more connection of the same client."""

    def __init__(
        self, play: Play, broker: int = 1, *, authenticated: bool = True, accounts: Accounts | None = None
    ) -> None:
        self.play = play
        self.client, self.broker = FakeWire(), FakeWire()
        self.session = Session(
            play.worker,
            self.client,
            lambda _: None,
            lambda _: None,
            sasl=play.sasl_rules,
            accounts=Accounts(play.meters, play.engine, "PLAIN") if accounts is None else accounts,
            peer="10.0.0.2:6",
            user="ANONYMOUS",
            authenticated=authenticated,
        )
        self.session.connected(self.broker, broker)

    def send(self, data: bytes) -> bytes:
        self.session.requests.feed(data, self.play.loop.now_ms)
        return self.broker.take()

    def feed(self, data: bytes) -> None:
        """Send, and break the session off as its wire does where that breaks the protocol."""
        try:
            self.session.requests.feed(data, self.play.loop.now_ms)
        except ProtocolError as error:
            self.session.reject("client", error)

    def answer(self, data: bytes) -> None:
        try:
            self.session.answers.feed(data, self.play.loop.now_ms)
        except ProtocolError as error:
            self.session.reject("broker", error)
