"""Recognizes a first token of Kerberos 5 that every reader parses the same way.

RFC 4121 §4.1 frames an AP-REQ of RFC 4120 §5.5.1. Libraries tolerate deviations: extra fields, a second AP-REQ behind
the first, BER instead of DER, mechanisms that wrap this one (SPNEGO). A token that two libraries may parse differently
is not read at all. Encrypted parts are not checked: decryption does that.
"""

from typing import Final

from proxy.identity.certificates.der import OBJECT_IDENTIFIER, SEQUENCE, Value, object_identifier, read

_KERBEROS_5: Final = "1.2.840.113554.1.2.2"
_FRAME: Final = 0x60
_TOKEN_ID: Final = 0x01
"""The two bytes 01 00 that mean AP-REQ are not DER; they parse as an empty value of tag 1."""
_AP_REQ: Final = 0x6E
_TICKET: Final = 0x61
_FIELD: Final = 0xA0


def is_ap_req(token: bytes) -> bool:
    """Whether ``token`` is exactly one AP-REQ with one ticket and one authenticator, in DER."""
    try:
        frame = read(token, 0, len(token)).expect(_FRAME, "the frame")
        mechanism, token_id, request = _parts(frame, OBJECT_IDENTIFIER, _TOKEN_ID, _AP_REQ)
        *_, ticket, authenticator = _fields(request, 0, 1, 2, 3, 4)
        *_, encrypted = _fields(_parts(ticket, _TICKET)[0], 0, 1, 2, 3)
        return (
            frame.end == len(token)
            and object_identifier(mechanism) == _KERBEROS_5
            and not token_id.content
            and _is_encrypted_data(encrypted)
            and _is_encrypted_data(authenticator)
        )
    except ValueError:
        return False


def _is_encrypted_data(field: Value) -> bool:
    (sequence,) = _parts(field, SEQUENCE)
    numbers = [part.tag - _FIELD for part in sequence.members()]
    return numbers in ([0, 1, 2], [0, 2])  # the version of the key is optional


def _fields(value: Value, *numbers: int) -> list[Value]:
    """Return the fields of the sequence in ``value``. Raises ValueError if their numbers differ."""
    (sequence,) = _parts(value, SEQUENCE)
    return _parts(sequence, *(_FIELD + number for number in numbers))


def _parts(value: Value, *tags: int) -> list[Value]:
    """Return the members of ``value``. Raises ValueError if their tags differ."""
    parts = list(value.members())
    if [part.tag for part in parts] != list(tags):
        raise ValueError(f"the value at byte {value.start} has other parts")
    return parts
