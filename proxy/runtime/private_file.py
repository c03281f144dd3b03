"""Files of this program's own, for the next start."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_DIRECTORY_MODE: Final = 0o700


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file atomically, and its folder if it is not there. Raises OSError."""
    path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
