"""Certificates in DER with any subject, valid or not. Nothing in them is signed: only the subject is looked at."""

from collections.abc import Iterable


def tlv(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(octets))) + octets + content


def attribute(oid: str, value: bytes) -> bytes:
    """``oid`` is the content of the OBJECT IDENTIFIER in hex, ``value`` a whole value."""
    return tlv(0x30, tlv(0x06, bytes.fromhex(oid)), value)


def name(*parts: Iterable[bytes]) -> bytes:
    """A Name: its parts in the order of the certificate, each one or several attributes."""
    return tlv(0x30, *(tlv(0x31, *part) for part in parts))


def certificate(subject: bytes, version: bytes = b"\xa0\x03\x02\x01\x02") -> bytes:
    empty = tlv(0x30)
    return tlv(0x30, tlv(0x30, version, tlv(0x02, b"\x01"), empty, empty, empty, subject, empty), empty, tlv(0x03))
