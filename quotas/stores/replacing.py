"""Putting a file in the place of another one, unless that has been replaced meanwhile.

Looking which file is there and renaming over it are two steps, between which an editor may rename its own file. Linux
exchanges two names in one step (renameat2, RENAME_EXCHANGE): what was there is then seen, and put back if it was not
expected. Some file systems cannot (NFS): there the two steps remain.
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
"""How often another file may be renamed to the place while what was there is put back."""

Known = tuple[int, int, int, int] | None


def known(path: Path) -> Known:
    """Return what a file keeps when its name is exchanged; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def replace_if(path: Path, expected: Known, beside: Path) -> bool:
    """Put ``beside`` in the place of ``path`` if that is ``expected``. False: it is not, and stays. Raises OSError."""
    if known(path) != expected:
        return False
    if not exchange(beside, path):
        beside.replace(path)
        return True
    if known(beside) == expected:
        beside.unlink()
        return True
    _put_back(path, beside)
    return False


def _put_back(path: Path, beside: Path) -> None:
    """Bring back to ``path`` what is ``beside``; or what has been renamed to ``path`` since, which is newer."""
    put = known(path)
    for _ in range(_ATTEMPTS):
        older = known(beside)
        exchange(beside, path)
        if known(beside) == put:
            return
        put = older


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names. False where the system or the file system cannot. Raises OSError."""
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
