"""The outside of Kerberos: tokens whose encrypted parts hold nothing, and keytabs."""

import struct

KERBEROS_5 = bytes.fromhex("2a864886f712010202")


def element(tag: int, *contents: bytes) -> bytes:
    """DER."""
    content = b"".join(contents)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content


def field(number: int, content: bytes) -> bytes:
    return element(0xA0 + number, content)


ENCRYPTED = element(0x30, field(0, b"\x02\x01\x12"), field(1, b"\x02\x01\x01"), field(2, element(0x04, b"sealed")))


def ticket(encrypted: bytes = ENCRYPTED, service: bytes = b"kafka") -> bytes:
    name = element(0x30, field(0, b"\x02\x01\x03"), field(1, element(0x30, element(0x1B, service))))
    fields = field(0, b"\x02\x01\x05"), field(1, element(0x1B, b"REALM")), field(2, name), field(3, encrypted)
    return element(0x61, element(0x30, *fields))


def request(*tickets: bytes, authenticator: bytes = ENCRYPTED) -> bytes:
    """An AP-REQ, of one ticket unless more are given."""
    before = field(0, b"\x02\x01\x05"), field(1, b"\x02\x01\x0e"), field(2, b"\x03\x05\0\0\0\0\0")
    inside = (field(3, each) for each in tickets or (ticket(),))
    return element(0x6E, element(0x30, *before, *inside, field(4, authenticator)))


def framed(inside: bytes, *, mechanism: bytes = KERBEROS_5, token_id: bytes = b"\x01\x00") -> bytes:
    return element(0x60, element(0x06, mechanism), token_id, inside)


def ap_req(*, authenticator: bytes = ENCRYPTED) -> bytes:
    """A client's first token."""
    return framed(request(authenticator=authenticator))


def keytab(*principals: str) -> bytes:
    """One key of no use for each `component/…@REALM`."""
    return b"\x05\x02" + b"".join(_entry(*principal.split("@")) for principal in principals)


def _entry(name: str, realm: str) -> bytes:
    components = name.split("/")
    texts = b"".join(struct.pack(">H", len(text)) + text.encode() for text in (realm, *components))
    key = struct.pack(">IIBHH", 1, 0, 1, 18, 32) + bytes(32)
    entry = struct.pack(">H", len(components)) + texts + key
    return struct.pack(">i", len(entry)) + entry
