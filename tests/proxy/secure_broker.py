"""A stand-in for a broker whose listener has TLS, demands SASL/PLAIN, or both."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack, unpack_from
from typing import Any, Final

from protocol.requests import WHICH_TOKENS
from tests.protocol.encode import encode_frame
from tests.proxy.fake_broker import end_looks, metadata

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE, TOKENS = 3, 17, 18, 36, 41
MAX_REQUEST_BYTES: Final = 100 * 2**20
USER: Final = "sluice"
PASSWORD: Final = "canary-5f1d"


class SecureBroker:
    """Answers Metadata, and DescribeDelegationToken with ``tokens``, to whom it knows; to others ApiVersions alone.

    ``password`` None: it knows everybody. ``asked`` are the api keys of all requests.
    """

    def __init__(self, password: str | None) -> None:
        self.password = password
        self.mechanisms = ["PLAIN"]
        self.handshake_error = 0
        self.newest_versions = 4
        """The newest ApiVersions that it knows."""
        self.first_token = b""
        self.tokens: dict[str, Any] = {"tokens": []}
        self.brokers: dict[int, tuple[str, int]] = {}
        self.cluster_id = "of-the-test"
        self.port = 0
        self.asked: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = self.password is None
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > MAX_REQUEST_BYTES:  # what a TLS handshake is, read as a size
                    break
                payload = await reader.readexactly(size)
                api_key, version, correlation_id, name = unpack_from(">hhih", payload)
                self.asked.append(api_key)
                answer = self._answer(api_key, version, payload[10 + name :], known=known)
                if answer is None:
                    break
                known = known or (api_key == AUTHENTICATE and answer[:2] == b"\0\0" and not self.first_token)
                writer.write(pack(">ii", 4 + len(answer), correlation_id) + answer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _answer(self, api_key: int, version: int, body: bytes, *, known: bool) -> bytes | None:
        match api_key:
            case 17:
                offered = b"".join(pack(">h", len(name)) + name.encode() for name in self.mechanisms)
                wanted = body[2:].decode()
                error = self.handshake_error or (0 if wanted in self.mechanisms else 33)
                return pack(">hi", error, len(self.mechanisms)) + offered
            case 36 if body[4:].split(b"\0")[1:] == [USER.encode(), str(self.password).encode()]:
                return pack(">hhi", 0, -1, len(self.first_token)) + self.first_token
            case 36:
                return pack(">hh", 58, 20) + b"Wrong\nuser, password" + pack(">i", 0)
            case 18:
                return self._versions(version, body)
            case 3 if known:
                return metadata(version, self.brokers, self.cluster_id)
            case 41 if known:
                return encode_frame(WHICH_TOKENS.spec, self.tokens)[8:]
        return None

    def _versions(self, version: int, body: bytes) -> bytes:
        if version > self.newest_versions:
            return pack(">hi", 35, 0)
        if version < 5:
            return bytes(6)
        node_id = next((node_id for node_id, (_, port) in self.brokers.items() if port == self.port), -1)
        is_meant = body.endswith(self.cluster_id.encode() + pack(">i", node_id) + b"\0")
        return pack(">h", 0 if is_meant else 129) + b"\1" + bytes(5)


@asynccontextmanager
async def secure_broker(
    *, password: str | None = None, context: ssl.SSLContext | None = None
) -> AsyncIterator[SecureBroker]:
    """A broker on loopback that names itself as node 1."""
    broker = SecureBroker(password)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=context)
    broker.port = server.sockets[0].getsockname()[1]
    broker.brokers = {1: ("127.0.0.1", broker.port)}
    try:
        yield broker
    finally:
        await end_looks(broker.port)
        server.close()
        await server.wait_closed()
