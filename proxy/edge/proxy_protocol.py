"""The PROXY protocol, versions 1 and 2: a load balancer sends the client's address before the client's first byte.

After HAProxy's specification (proxy-protocol.txt, 2020/03/05). TLVs after the addresses are skipped: they
repeat what TLS or SASL tells better. So is the checksum (CRC32C), which guards against nothing that TCP does not.
"""

import re
import socket
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct
from typing import Final

from config.units import Address
from protocol.errors import Cause, ProtocolError
from proxy.edge.arrival import Arrival
from proxy.edge.kernel import peek
from proxy.edge.stats import LeftEarly
from quotas.connections import counted_as

V1_SIGNATURE: Final = b"PROXY "
V2_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"

MAX_HEADER_BYTES: Final = 16 * 1024
"""The longest accepted header; version 2 would allow 64 KiB, and load balancers send some hundred bytes."""

_V1_MAX_BYTES: Final = 107
_PORT: Final = re.compile("0|[1-9][0-9]{0,4}")
_LAST_PORT: Final = 65535
_V2_HEAD: Final = Struct(">12sBBH")
"""signature, version << 4 | command, address family << 4 | transport, bytes that follow"""
_TCP4: Final = Struct(">4s4xH2x")
_TCP6: Final = Struct(">16s16xH2x")
_LOCAL, _PROXY = 0, 1
_MAX_FAMILY, _MAX_TRANSPORT = 3, 2
_IPV4_STREAM, _IPV6_STREAM = 0x11, 0x21


@dataclass(frozen=True, slots=True)
class Header:
    """A complete header at the beginning of the parsed bytes."""

    length_bytes: int
    source: Address | None
    """The address that connected to the load balancer. None: the connection is the load balancer's own (LOCAL), or
    without IP address and port (UNKNOWN, Unix sockets, datagrams); then the socket's own address counts."""


def parse(data: bytes) -> Header | None:
    """Parse the header at the beginning of ``data``; None while it is incomplete, so that all of ``data`` belongs to
    it.

    Raises ProtocolError as soon as ``data`` cannot be a header (PROXY_PROTOCOL_MISSING) or is a malformed one
    (PROXY_PROTOCOL_INVALID).
    """
    if _begins(data, V1_SIGNATURE):
        return _version_1(data)
    if _begins(data, V2_SIGNATURE):
        return _version_2(data) if len(data) >= _V2_HEAD.size else None
    raise ProtocolError(
        Cause.PROXY_PROTOCOL_MISSING,
        "no PROXY protocol header, and this network requires one: let the load balancer send it, "
        "or remove its network from proxy_protocol.networks",
    )


def least_bytes(data: bytes) -> int:
    """Return the least length of the incomplete header that ``data`` begins: before that it need not be parsed."""
    if data.startswith(V2_SIGNATURE) and len(data) >= _V2_HEAD.size:
        return _V2_HEAD.size + int(_V2_HEAD.unpack_from(data)[3])
    return len(data) + 1


def is_header(data: bytes) -> bool:
    """Whether ``data``, the first bytes of a connection, begin a header."""
    return data.startswith((V1_SIGNATURE, V2_SIGNATURE))


async def read_source(arrival: Arrival) -> None:
    """Take the client's address from the header. Raises as ``read_header``."""
    header = await read_header(arrival.client)
    arrival.peer = header.source or arrival.peer
    arrival.names_source = False


async def read_header(client: socket.socket) -> Header:
    """Read the header and not a byte beyond it. Raises ProtocolError for anything else, or LeftEarly."""
    begun, least = bytearray(), 1
    while True:
        peeked = await peek(client, MAX_HEADER_BYTES)
        if not peeked and begun:
            raise ProtocolError(Cause.PROXY_PROTOCOL_INVALID, "the connection ends within the PROXY protocol header")
        if not peeked:
            raise LeftEarly
        before = len(begun)
        begun.extend(peeked)
        header = None
        if len(begun) >= least:
            data = bytes(begun)
            header, least = parse(data), least_bytes(data)
        # An incomplete header is consumed: left in the socket, it would keep the socket readable for ever.
        client.recv(len(peeked) if header is None else header.length_bytes - before)
        if header is not None:
            return header


def _begins(data: bytes, signature: bytes) -> bool:
    return data.startswith(signature) or signature.startswith(data)


def _version_1(data: bytes) -> Header | None:
    r"""``PROXY TCP4 192.0.2.1 198.51.100.1 56324 9092\r\n``."""
    end = data.find(b"\r\n", 0, _V1_MAX_BYTES)
    if end < 0:
        if len(data) >= _V1_MAX_BYTES:
            raise _invalid(f"version 1 without a line end in {_V1_MAX_BYTES} bytes")
        return None
    fields = data[len(V1_SIGNATURE) : end].decode("ascii", "replace").split(" ")
    if fields[0] == "UNKNOWN":
        return Header(end + 2, None)
    ip_of = {"TCP4": IPv4Address, "TCP6": IPv6Address}.get(fields[0])
    if ip_of is None:
        raise _invalid("version 1 is neither TCP4 nor TCP6 nor UNKNOWN")
    if len(fields) != 5:
        raise _invalid(f"version 1 has {len(fields) - 1} fields behind {fields[0]} instead of 4")
    if "%" in fields[1] + fields[2]:
        raise _invalid("version 1 has an address with a scope, which has no meaning on another machine")
    try:
        source, _ = [str(ip_of(each)) for each in fields[1:3]]
    except AddressValueError:
        raise _invalid(f"version 1 has no {fields[0]} address in its place") from None
    if not all(_PORT.fullmatch(each) and int(each) <= _LAST_PORT for each in fields[3:]):
        raise _invalid("version 1 has no port in its place")
    return Header(end + 2, Address(counted_as(source), int(fields[3])))


def _version_2(data: bytes) -> Header | None:
    _, version_command, family_transport, following_bytes = _V2_HEAD.unpack_from(data)
    command = version_command & 0xF
    if version_command >> 4 != 2 or command not in (_LOCAL, _PROXY):
        raise _invalid(f"version and command are 0x{version_command:02x} instead of 0x20 or 0x21")
    if family_transport >> 4 > _MAX_FAMILY or family_transport & 0xF > _MAX_TRANSPORT:
        raise _invalid(f"address family and transport are 0x{family_transport:02x}, which is undefined")
    length_bytes = _V2_HEAD.size + following_bytes
    if length_bytes > MAX_HEADER_BYTES:
        raise _invalid(f"version 2 has {length_bytes} bytes, the limit is {MAX_HEADER_BYTES}")
    addresses = _TCP4 if family_transport == _IPV4_STREAM else _TCP6
    known = command == _PROXY and family_transport in (_IPV4_STREAM, _IPV6_STREAM)
    if known and following_bytes < addresses.size:
        raise _invalid(f"{following_bytes} bytes are too few for two addresses and two ports")
    if len(data) < length_bytes:
        return None
    if not known:
        return Header(length_bytes, None)
    packed, port = addresses.unpack_from(data, _V2_HEAD.size)
    source = IPv4Address(packed) if addresses is _TCP4 else IPv6Address(packed)
    return Header(length_bytes, Address(counted_as(str(source)), port))


def _invalid(what: str) -> ProtocolError:
    return ProtocolError(Cause.PROXY_PROTOCOL_INVALID, f"PROXY protocol header: {what}")
