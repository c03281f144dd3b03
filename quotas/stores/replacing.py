"""Compare-and-swap of a file: replaces it unless it has been replaced meanwhile.

Checking which file is there and renaming over it are two steps, between which an editor may rename its own file. Linux
exchanges two names in one step (renameat2, RENAME_EXCHANGE): the previous file is then checked, and put back if it was
not the expected one. Some file systems cannot do that (NFS): there the two steps remain.
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_CANNOT: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
_ATTEMPTS: Final = 100
"""How often the previous file may change again while it is put back."""

Identity = tuple[int, int, int, int]


def identity(path: Path) -> Identity | None:
    """Return what tells one content of a file from another; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns  # an exchange of names leaves these


def replace_if(path: Path, expected: Identity, beside: Path) -> bool:
    """Replace ``path`` with ``beside`` if ``path`` is the ``expected`` file. Returns False if it is not. Raises
    OSError.
    """
    if identity(path) != expected:
        return False
    if not exchange(beside, path):
        beside.replace(path)
        return True
    if identity(beside) == expected:
        beside.unlink()
        return True
    _put_back(path, beside)
    return False


def _put_back(path: Path, beside: Path) -> None:
    """Exchange the files back; if another file was renamed to ``path`` since, that newer one stays."""
    put = identity(path)
    for _ in range(_ATTEMPTS):
        older = identity(beside)
        exchange(beside, path)
        if identity(beside) == put:
            return
        put = older


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names. Returns False if the system or the file system cannot. Raises OSError."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(other))
