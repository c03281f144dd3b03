"""The PROXY protocol's header: every form, every way to be wrong, every split."""

from ipaddress import IPv4Address, IPv6Address
from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from config.units import Address
from protocol.errors import Cause, ProtocolError
from proxy.edge.proxy_protocol import MAX_HEADER_BYTES, V2_SIGNATURE, Header, is_header, parse
from quotas.connections import counted_as

TCP4, TCP6, UNIX, UDP4, UNSPECIFIED = 0x11, 0x21, 0x31, 0x12, 0x00
PORTS = st.integers(0, 65535)


def version_2(command: int, family: int, following: bytes) -> bytes:
    return V2_SIGNATURE + pack(">BBH", 0x20 | command, family, len(following)) + following


def tcp4(source: IPv4Address, port: int, behind: bytes = b"") -> bytes:
    return version_2(1, TCP4, source.packed + bytes(4) + pack(">HH", port, 9092) + behind)


def tcp6(source: IPv6Address, port: int, behind: bytes = b"") -> bytes:
    return version_2(1, TCP6, source.packed + bytes(16) + pack(">HH", port, 9092) + behind)


def cause_of(data: bytes) -> Cause:
    with pytest.raises(ProtocolError) as caught:
        parse(data)
    return caught.value.cause


@given(st.ip_addresses(v=4), PORTS)
def test_version_1_over_ipv4(source: IPv4Address, port: int) -> None:
    line = f"PROXY TCP4 {source} 198.51.100.1 {port} 9092\r\n".encode()
    assert parse(line + b"\x16\x03") == Header(len(line), Address(str(source), port))


@given(st.ip_addresses(v=6), PORTS)
def test_version_1_over_ipv6(source: IPv6Address, port: int) -> None:
    line = f"PROXY TCP6 {source} 2001:db8::1 {port} 9092\r\n".encode()
    assert parse(line) == Header(len(line), Address(counted_as(str(source)), port))


@pytest.mark.parametrize(
    "line", [b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN ffff:f... what ever\r\n", b"PROXY UNKNOWN" + b" " * 92 + b"\r\n"]
)
def test_version_1_of_an_unknown_kind_keeps_the_sockets_address(line: bytes) -> None:
    assert parse(line) == Header(len(line), None)


@given(st.ip_addresses(v=4), PORTS, st.binary(max_size=300))
def test_version_2_over_ipv4_with_anything_behind_the_addresses(source: IPv4Address, port: int, behind: bytes) -> None:
    data = tcp4(source, port, behind)
    assert parse(data + b"rest") == Header(len(data), Address(str(source), port))


@given(st.ip_addresses(v=6), PORTS, st.binary(max_size=300))
def test_version_2_over_ipv6(source: IPv6Address, port: int, behind: bytes) -> None:
    data = tcp6(source, port, behind)
    assert parse(data) == Header(len(data), Address(counted_as(str(source)), port))


@pytest.mark.parametrize(
    "data",
    [
        version_2(0, UNSPECIFIED, b""),
        version_2(0, TCP4, bytes(12)),
        version_2(0, TCP4, b""),
        version_2(1, UNSPECIFIED, b"\4\0\1x"),
        version_2(1, UNIX, bytes(216)),
        version_2(1, UDP4, bytes(12)),
    ],
    ids=["local", "local with an address", "local, short", "unspecified", "unix", "datagrams"],
)
def test_version_2_without_a_tcp_source_keeps_the_sockets_address(data: bytes) -> None:
    assert parse(data) == Header(len(data), None)


def test_an_ipv4_address_in_ipv6_clothes_is_the_ipv4_address() -> None:
    mapped = IPv6Address("::ffff:192.0.2.1")
    header = parse(tcp6(mapped, 7))
    assert header is not None
    assert header.source == Address("192.0.2.1", 7)


@pytest.mark.parametrize(
    "line",
    [
        "PROXY",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3",
        "PROXY TCP4  192.0.2.1 198.51.100.1 1 2",
        "PROXY TCP4 192.0.2.01 198.51.100.1 1 2",
        "PROXY TCP4 192.0.2.256 198.51.100.1 1 2",
        "PROXY TCP4 2001:db8::1 2001:db8::1 1 2",
        "PROXY TCP6 192.0.2.1 198.51.100.1 1 2",
        "PROXY TCP6 fe80::1%eth0 2001:db8::1 1 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 65536 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 01 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 +1 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 ² 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 ",
        "PROXY UDP4 192.0.2.1 198.51.100.1 1 2",
        "PROXY tcp4 192.0.2.1 198.51.100.1 1 2",
        "PROXY ",
    ],
)
def test_malformed_version_1_header_is_invalid(line: str) -> None:
    expected = Cause.PROXY_PROTOCOL_MISSING if line == "PROXY" else Cause.PROXY_PROTOCOL_INVALID
    assert cause_of(line.encode() + b"\r\n") is expected


def test_unterminated_version_1_header_is_invalid_after_107_bytes() -> None:
    assert parse(b"PROXY UNKNOWN".ljust(106)) is None
    assert cause_of(b"PROXY UNKNOWN".ljust(107)) is Cause.PROXY_PROTOCOL_INVALID
    assert cause_of(b"PROXY UNKNOWN".ljust(106) + b"\r\n") is Cause.PROXY_PROTOCOL_INVALID


@pytest.mark.parametrize(
    "data",
    [
        V2_SIGNATURE + b"\x11\x11\0\x0c" + bytes(12),
        V2_SIGNATURE + b"\x22\x11\0\x0c" + bytes(12),
        V2_SIGNATURE + b"\x31\x11\0\x0c" + bytes(12),
        version_2(1, 0x41, bytes(12)),
        version_2(1, 0x13, bytes(12)),
        version_2(1, TCP4, bytes(11)),
        version_2(1, TCP6, bytes(35)),
        V2_SIGNATURE + pack(">BBH", 0x21, TCP4, MAX_HEADER_BYTES - 15),
    ],
    ids=["version 1", "command 2", "version 3", "family 4", "transport 3", "short v4", "short v6", "too long"],
)
def test_malformed_version_2_header_is_invalid(data: bytes) -> None:
    assert cause_of(data) is Cause.PROXY_PROTOCOL_INVALID


def test_version_2_header_of_largest_size_is_parsed() -> None:
    data = tcp4(IPv4Address("192.0.2.1"), 1, bytes(MAX_HEADER_BYTES - 28))
    assert parse(data) == Header(MAX_HEADER_BYTES, Address("192.0.2.1", 1))


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01", b"\0\0\0\x20\0\x12", b"GET / HTTP/1.1\r\n", b"PROXZ ", b"\r\n\r\n\1"]
)
def test_bytes_of_other_protocols_are_reported_as_missing_header(data: bytes) -> None:
    assert cause_of(data) is Cause.PROXY_PROTOCOL_MISSING
    assert not is_header(data)


HEADERS = st.one_of(
    st.builds(tcp4, st.ip_addresses(v=4), PORTS, st.binary(max_size=40)),
    st.builds(tcp6, st.ip_addresses(v=6), PORTS, st.binary(max_size=40)),
    st.builds(lambda a, p: f"PROXY TCP4 {a} {a} {p} {p}\r\n".encode(), st.ip_addresses(v=4), PORTS),
    st.just(b"PROXY UNKNOWN\r\n"),
)


@given(HEADERS)
def test_at_every_split_nothing_is_known_before_the_end(data: bytes) -> None:
    assert is_header(data)
    for split in range(len(data)):
        assert parse(data[:split]) is None
    header = parse(data + b"client's own")
    assert header is not None
    assert header.length_bytes == len(data)


@given(st.one_of(st.binary(max_size=300), HEADERS.flatmap(lambda h: st.binary(max_size=60).map(lambda b: h[:14] + b))))
@example(b"")
def test_any_bytes_are_a_header_or_the_beginning_of_one_or_refused_for_ever(data: bytes) -> None:
    refused = False
    for split in range(len(data) + 1):
        try:
            header = parse(data[:split])
        except ProtocolError:
            refused = True
        else:
            assert not refused
            if header is not None:
                assert header.length_bytes <= split
                assert parse(data) == header
                return
