"""GSSAPI by hand: a client of MIT's library that can be stopped, or made to lie, between any two tokens.

The library is imported where it is used: tests that need no broker are collected beside those that do, and need none.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from tests.harness.kdc import Kdc
from tests.harness.sasl import Answer, authenticate, handshake, raw_token
from tests.harness.wire import Connection

SPNEGO: Final = "1.3.6.1.5.5.2"

_caches = count(1)


@contextmanager
def realm(kdc: Kdc) -> Iterator[Kdc]:
    """While it lasts, the library in this process knows this realm."""
    before = os.environ.get("KRB5_CONFIG")
    os.environ["KRB5_CONFIG"] = str(kdc.config)
    try:
        yield kdc
    finally:
        del os.environ["KRB5_CONFIG"]
        if before is not None:
            os.environ["KRB5_CONFIG"] = before


class GssapiClient:
    """One exchange as the principal of `keytab`, with the service `kafka` at `host`; within SPNEGO, if asked."""

    def __init__(self, keytab: Path, host: str = "localhost", *, spnego: bool = False) -> None:
        import gssapi

        store = {"client_keytab": str(keytab), "ccache": f"MEMORY:by-hand-{next(_caches)}"}
        service = gssapi.Name(f"kafka@{host}", gssapi.NameType.hostbased_service)
        self._context = gssapi.SecurityContext(
            name=service,
            creds=gssapi.Credentials(usage="initiate", store=store),
            mech=gssapi.OID.from_int_seq(SPNEGO) if spnego else gssapi.MechType.kerberos,
        )

    def first(self) -> bytes:
        """The token with the ticket."""
        token: bytes = self._context.step()
        return token

    def log_in(self, connection: Connection, authzid: str = "") -> Answer:
        """The last answer: of mutual authentication, so there are three."""
        handshake(connection, "GSSAPI")
        answer = authenticate(connection, self.first())
        return answer if answer.error_code else self.go_on(connection, answer, authzid)

    def log_in_raw(self, connection: Connection) -> None:
        """The same in tokens without headers. The last one gets no answer."""
        handshake(connection, "GSSAPI", version=0)
        connection.send(raw_token(self.first()))
        self._context.step(connection.receive()[4:])
        connection.send(raw_token(b""))
        connection.send(raw_token(self._final(connection.receive()[4:], "")))

    def go_on(self, connection: Connection, answer: Answer, authzid: str = "") -> Answer:
        """The same from the answer to the first token on."""
        self._context.step(answer.token)
        offer = authenticate(connection, b"")
        return authenticate(connection, self._final(offer.token, authzid))

    def _final(self, offer: bytes, authzid: str) -> bytes:
        """The choice of no layer of security (RFC 4752 §3.1)."""
        layers: bytes = self._context.unwrap(offer).message
        token: bytes = self._context.wrap(b"\x01" + layers[1:] + authzid.encode(), False).message
        return token
