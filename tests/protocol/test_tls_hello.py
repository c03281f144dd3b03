"""The host in a ClientHello: those of OpenSSL, divided anywhere, and bytes that strangers send."""

import ssl
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.tls_hello import MOST_BYTES, Hello, HelloSearch, Incomplete, NotAHelloError
from tests.harness.examples import examples

HOST = "b1.kafka.test"


def hello_of(host: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Return the first bytes that OpenSSL sends."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.minimum_version = context.maximum_version = version
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host).do_handshake()
    return outgoing.read()


def record(body: bytes) -> bytes:
    return b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body


def divided(hello: bytes, *at: int) -> bytes:
    """Divide a ClientHello of one record into several."""
    body = hello[5:]
    return b"".join(record(body[begin:end]) for begin, end in pairwise((0, *at, len(body))))


def made(extensions: bytes | None) -> bytes:
    """Return a ClientHello with these extensions; None: without the field."""
    after = b"" if extensions is None else len(extensions).to_bytes(2, "big") + extensions
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + after
    return record(b"\1" + len(body).to_bytes(3, "big") + body)


def extension(kind: int, body: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body


def named(host: bytes) -> bytes:
    entry = b"\0" + len(host).to_bytes(2, "big") + host
    return extension(0, len(entry).to_bytes(2, "big") + entry)


def find_server_name(data: bytes) -> Hello | Incomplete:
    return HelloSearch().look(data)


REAL = hello_of(HOST)
SHORT = made(named(HOST.encode()))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_server_name_of_openssl_hello_is_read(version: ssl.TLSVersion) -> None:
    longest = ".".join(["x" * 63] * 3 + ["y" * 61])
    for host in (HOST, longest, "B7.Kafka.Test", None):
        assert find_server_name(hello_of(host, version)) == Hello(host)


@pytest.mark.parametrize(
    "hello",
    [REAL, divided(REAL, REAL.index(HOST.encode()) - 2), divided(REAL, *range(1, len(REAL) - 5))],
    ids=["one record", "divided in the name", "records of one byte"],
)
def test_incomplete_hello_needs_no_more_than_its_length(hello: bytes) -> None:
    growing = HelloSearch()
    for have in range(len(hello)):
        found = growing.look(hello[:have])
        assert isinstance(found, Incomplete)
        assert found == find_server_name(hello[:have])
        assert have < found.needed_bytes <= len(hello)
    assert find_server_name(hello + b"what follows") == growing.look(hello + b"what follows") == Hello(HOST)


def test_hello_in_tiny_records_is_searched_few_times() -> None:
    """A client that sends a byte at a time cannot have it searched again with every byte."""
    hello = divided(REAL, *range(1, len(REAL) - 5))
    looks, have = 0, 1
    while isinstance(found := find_server_name(hello[:have]), Incomplete):
        looks, have = looks + 1, found.needed_bytes
    assert (found, have <= len(hello), looks < 50) == (Hello(HOST), True, True)


@given(st.lists(st.integers(1, len(REAL) - 6), unique=True))
def test_hello_divided_into_records_anywhere_is_read(at: list[int]) -> None:
    assert find_server_name(divided(REAL, *sorted(at))) == Hello(HOST)


@pytest.mark.parametrize(
    "extensions",
    [None, b"", extension(10, b"\0\2\0\x1d"), extension(16, b"")],
    ids=["no field", "none", "one", "empty"],
)
def test_hello_without_a_server_name_has_none(extensions: bytes | None) -> None:
    assert find_server_name(made(extensions)) == Hello(None)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\0\0\0\x1c\0\x12\0\3",
        b"\x15\x03\x01\0\2\1\0",
        b"\x16\x02\0\0\1\1",
        record(b""),
        b"\x16\x03\x01\x40\x01\1",
        b"\x16\x03\x01\xff\xff\1",
        record(b"\2\0\0\1\0"),
        record(b"\1\0\x40\0"),
        record(b"\1\xff\xff\xff"),
        record(b"\1\0\0\0"),
        record(b"\1\0\0\x22" + bytes(34)),
        made(extension(0, b"")),
        made(extension(0, b"\0\3\1\0\0")),
        made(extension(0, b"\0\4\0\0\xff\0")),
        made(named("ä".encode())),
        made(b"\0\0\xff\xff"),
        made(b"\0"),
    ],
)
def test_bytes_that_are_no_hello_are_refused(data: bytes) -> None:
    with pytest.raises(NotAHelloError):
        find_server_name(data)


def test_too_long_hello_is_refused_by_its_length() -> None:
    longest = MOST_BYTES - len(made(extension(21, b"")))
    assert find_server_name(made(extension(21, bytes(longest)))) == Hello(None)
    for size in (longest + 1, 2**16 - 60):
        with pytest.raises(NotAHelloError):
            find_server_name(made(extension(21, bytes(size)))[:9])


@examples(5)
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=60).map(lambda tail: b"\x16\x03\1" + tail)))
def test_any_bytes_are_a_hello_or_its_beginning_or_refused(data: bytes) -> None:
    with suppress(NotAHelloError):
        found = find_server_name(data)
        assert isinstance(found, Hello) or len(data) < found.needed_bytes <= MOST_BYTES


@examples(5)
@given(st.data())
def test_a_hello_with_changed_bytes_is_still_one_or_refused(data: st.DataObject) -> None:
    changed = bytearray(data.draw(st.sampled_from([SHORT, REAL, divided(SHORT, *range(1, len(SHORT) - 5))])))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.sampled_from([0, 1, 3, 22, 127, 128, 255]))
    with suppress(NotAHelloError):
        find_server_name(bytes(changed))
