"""Whose keys a keytab holds. The keys themselves are not kept: to decrypt is the Kerberos library's.

The format is MIT's, version 2 (krb5's doc/formats/keytab_file_format.rst): each entry is a size, the count of its
components, realm and components as counted texts, and then what is not read here. A negative size is a hole.
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
    """Return the principals that have a key in the file, each once, as ``kafka/host@REALM``.

    Raises InvalidValue if there is none, or the file cannot be read or is no keytab.
    """
    try:
        content = read_file(path)
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}", "the proxy's own user must be able to") from None
    if not content.startswith(_VERSION_2):
        raise InvalidValue(f"{path} is not a keytab", "write one with kadmin's ktadd, or with ktpass")
    try:
        found = _entries(content)
    except (struct.error, IndexError):
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
            break  # as krb5 does: what follows has been given up
        if size > 0:
            found.append(_principal(_part(content, offset, size)))
        offset += abs(size)
    return found


def _principal(entry: bytes) -> str:
    (count,) = _INT16.unpack_from(entry)
    offset = 2
    texts = []
    for _ in range(count + 1):
        (length,) = _INT16.unpack_from(entry, offset)
        texts.append(_part(entry, offset + 2, length).decode("utf-8", "replace"))
        offset += 2 + length
    realm, *components = texts
    return f"{'/'.join(components)}@{realm}"


def _part(content: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(content):
        raise IndexError(offset)
    return content[offset : offset + size]
