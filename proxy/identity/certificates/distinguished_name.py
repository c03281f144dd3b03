r"""A certificate's subject as a string, as Java's ``X500Principal.getName()`` writes it (RFC 2253); it is the user
name.

The last part comes first; parts are separated by a comma without a space; a part with several values keeps their order.
Nine attributes have a keyword; any other has its OID, and its value as ``#`` and the DER in hex.

This is Java 17 exactly. It decodes every kind of string as UTF-8 and replaces invalid bytes by U+FFFD; so a BMPString
shows its zero bytes, as ``\00``, and two subjects in Latin-1 may become one string. Names in UTF-8 never do. Java 25
decodes Latin-1 and UTF-16 properly.
"""

import re
from typing import Final

from proxy.identity.certificates import der

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_STRINGS: Final = frozenset(
    (
        0x0C,  # UTF8String
        0x13,  # PrintableString
        0x14,  # T61String
        0x16,  # IA5String
        0x1B,  # GeneralString
        0x1E,  # BMPString
    )
)
"""``AVA.isDerString``; it does not include NumericString, VisibleString and UniversalString."""

_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_BLANK_ENDS: Final = re.compile(r"\A[ \r]+|[ \r]+\Z")
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_VERSION: Final = 0xA0
_FIELDS_BEFORE_SUBJECT: Final = ("serial number", "signature", "issuer", "validity")


def rfc2253(certificate: bytes) -> str:
    """Return the subject of a certificate in DER; may be empty. Raises ValueError that says where the DER breaks."""
    return _name(_subject(certificate))


def _subject(certificate: bytes) -> der.Value:
    outermost = der.read(certificate, 0, len(certificate)).expect(der.SEQUENCE, "the certificate")
    signed = der.read(certificate, outermost.begin, outermost.end).expect(der.SEQUENCE, "its signed part")
    field = der.read(certificate, signed.begin, signed.end)
    if field.tag == _VERSION:
        field = der.read(certificate, field.end, signed.end)
    for what in _FIELDS_BEFORE_SUBJECT:
        field.expect(der.INTEGER if what == "serial number" else der.SEQUENCE, f"the {what}")
        field = der.read(certificate, field.end, signed.end)
    return field.expect(der.SEQUENCE, "the subject")


def _name(subject: der.Value) -> str:
    parts = [part.expect(der.SET, "a part of the subject").members() for part in subject.members()]
    return ",".join("+".join(map(_attribute, part)) for part in reversed(parts))


def _attribute(attribute: der.Value) -> str:
    members = list(attribute.expect(der.SEQUENCE, "an attribute").members())
    if len(members) != 2:
        raise ValueError(f"the attribute at byte {attribute.start} is {len(members)} values instead of type and value")
    oid, value = der.object_identifier(members[0]), members[1]
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(_java_text(value.content))}"


def _escaped(text: str) -> str:
    escaped = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", r"\00")
    return _BLANK_ENDS.sub(lambda blanks: "".join(f"\\{blank}" for blank in blanks[0]), escaped)


def _java_text(content: bytes) -> str:
    """Decode UTF-8 as Java does, which replaces an encoded surrogate by one U+FFFD, not three."""
    return _SURROGATE.sub("\ufffd".encode(), content).decode("utf-8", "replace")
