"""What a listener of a broker speaks, found by asking it: so that what a client's settings have wrong can be named."""

import asyncio
import ssl
import struct
from typing import Final

_PATIENCE_S: Final = 3.0
_API_VERSIONS, _SASL_HANDSHAKE = 18, 17
_ILLEGAL_SASL_STATE: Final = 34
"""What a listener without login answers to whoever wants to log in."""
_MOST_BYTES: Final = 2**16


async def protocol_of(host: str, port: int) -> str | None:
    """Return PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; None where nothing that is Kafka's answers."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE  # nothing is told to it, and nothing of it is believed
    plain, within = await asyncio.gather(_has_login(host, port, None), _has_login(host, port, anybody))
    if plain is not None:
        return "SASL_PLAINTEXT" if plain else "PLAINTEXT"
    if within is not None:
        return "SASL_SSL" if within else "SSL"
    return "SSL" if await _speaks_tls(host, port, anybody) else None


async def _has_login(host: str, port: int, tls: ssl.SSLContext | None) -> bool | None:
    """Return whether a listener has logins; None: it does not speak like that."""
    writer = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            await _ask(reader, writer, _API_VERSIONS, 0, b"")
            (code,) = struct.unpack_from(">h", await _ask(reader, writer, _SASL_HANDSHAKE, 1, b"\x00\x05PLAIN"))
    except (OSError, EOFError, TimeoutError, struct.error):
        return None
    finally:
        if writer is not None:
            await _close(writer)
    return bool(code != _ILLEGAL_SASL_STATE)


async def _speaks_tls(host: str, port: int, tls: ssl.SSLContext) -> bool:
    """Return whether there is TLS, though nothing is said within: it may want a certificate."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port, ssl=tls)
    except (OSError, TimeoutError) as error:
        # An alert is an answer in TLS. What is no TLS at all is named by OpenSSL: WRONG_VERSION_NUMBER and others.
        return isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
    await _close(writer)
    return True


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection without a word: nobody is told goodbye who was only asked who he is."""
    writer.transport.abort()
    await asyncio.sleep(0)


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int, version: int, body: bytes
) -> bytes:
    """Return the body of an answer."""
    request = struct.pack(">hhi", key, version, key) + b"\x00\x06sluice" + body
    writer.write(struct.pack(">i", len(request)) + request)
    size, correlation = struct.unpack(">ii", await reader.readexactly(8))
    if correlation != key or not 4 <= size <= _MOST_BYTES:
        raise EOFError
    return await reader.readexactly(size - 4)
