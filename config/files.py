"""Safe reading of files that others write, so that the reader never blocks.

Opening a named pipe blocks until there is a writer, and reading a terminal or a device may never end. A thread that
does so is lost, and keeps the process from exiting.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from config.problems import InvalidValue

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
_SHORTEST_SECRET: Final = 16

_KINDS: Final = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotAFileError(OSError):
    """The path is not a regular file; ``strerror`` says what it is."""


def read_file(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError, whose ``strerror`` gives the reason; ValueError for a bad
    name.
    """
    require_regular(path)
    # A file that has replaced it meanwhile is opened without blocking.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        _refuse(path, os.fstat(descriptor).st_mode)
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"is larger than {MAX_FILE_BYTES // 1024**2} MiB", str(path))
    return content


def require_regular(path: Path) -> None:
    """Raise OSError unless ``path`` is a regular file: call it before a library opens the file, which could block."""
    _refuse(path, path.stat().st_mode)


def _refuse(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise NotAFileError(errno.EINVAL, f"is {kind}, not a file", str(path))


def read_secret(path: Path) -> bytes:
    """Return the secret in a file, without spaces around it. Raises InvalidValue."""
    try:
        secret = read_file(path).strip()
    except OSError as error:
        raise InvalidValue(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if len(secret) < _SHORTEST_SECRET:
        said = f"{path} has {len(secret)} bytes, and can be guessed" if secret else f"{path} is empty"
        raise InvalidValue(said, "write one into it: openssl rand -hex 32")
    return secret
