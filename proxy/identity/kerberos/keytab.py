"""Lists the principals in a keytab. The keys are not read: the Kerberos library does the decryption.

The format is MIT's version 2 (krb5's doc/formats/keytab_file_format.rst): each entry has a size, the number of its
components, realm and components as counted strings, and fields not read here. A negative size marks a hole.
"""

import struct
from pathlib import Path
from struct import Struct
from typing import Final

from config.files import read_file
from config.problems import InvalidValue

_VERSION_2: Final = b"\x05\x02"
_INT16: Final = Struct(">H")
_INT32: Final = Struct(">i")


def principals(path: Path) -> list[str]:
    """Return the principals with a key in the file, as ``kafka/host@REALM``. Raises InvalidValue if it holds none."""
    try:
        content = read_file(path)
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}", "the proxy's own user must be able to") from None
    if not content.startswith(_VERSION_2):
        raise InvalidValue(f"{path} is not a keytab", "write one with kadmin's ktadd, or with ktpass")
    try:
        found = _entries(content)
    except struct.error:
        raise InvalidValue(f"{path} is a keytab that ends too early", "copy it again") from None
    if not found:
        raise InvalidValue(f"{path} holds no key", "add that of the service principal with kadmin's ktadd")
    return list(dict.fromkeys(found))


def _entries(content: bytes) -> list[str]:
    found = []
    offset = len(_VERSION_2)
    while offset < len(content):
        (size,) = _INT32.unpack_from(content, offset)
        offset += 4
        if size == 0:
            break  # as krb5 does: the rest is unused
        if size > 0:
            found.append(_principal(_bytes(content, offset, size)))
        offset += abs(size)
    return found


def _principal(entry: bytes) -> str:
    (count,) = _INT16.unpack_from(entry)
    offset = 2
    texts = []
    for _ in range(count + 1):
        (length,) = _INT16.unpack_from(entry, offset)
        texts.append(_bytes(entry, offset + 2, length).decode("utf-8", "replace"))
        offset += 2 + length
    realm, *components = texts
    return f"{'/'.join(components)}@{realm}"


def _bytes(content: bytes, offset: int, size: int) -> bytes:
    (found,) = struct.unpack_from(f"{size}s", content, offset)
    return bytes(found)
