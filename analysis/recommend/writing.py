"""Where a quota file is written: never over what may be in force unless that is asked for, whole or not at all."""

import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from analysis.errors import AnalysisError


def refuse_place(path: Path, *, force: bool) -> None:
    """Keep a quota file that may be in force from being lost, and a link from becoming a file.

    Raises AnalysisError for these, and for what cannot be written.
    """
    with _said(path):
        there = _kind(path)
        if stat.S_ISLNK(there):
            raise AnalysisError(f"{path} is a link, as Kubernetes mounts a ConfigMap: write to another file")
        if there and not stat.S_ISREG(there):
            raise AnalysisError(f"{path} is no file: write to a file")
        if there and not force:
            raise AnalysisError(
                f"{path} is there already: write to another file, compare, and take over what you want; "
                "--force replaces it"
            )
        # Whether one can be made, only making one says; this one has no name.
        with tempfile.TemporaryFile(dir=_nearest(path.parent)):
            pass


def write(path: Path, text: str) -> None:
    """Write all of a file or nothing: a proxy that reads it meanwhile sees the old one or the new one."""
    with _said(path):
        made = _made(path.parent)
        # Of a name that nobody knows, and only if there is none: a link in its place would be followed.
        beside = path.with_name(f".{uuid4().hex}.new")
        try:
            with beside.open("x", encoding="utf-8", newline="") as file:
                if path.exists():
                    beside.chmod(stat.S_IMODE(path.stat().st_mode))
                file.write(text)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            for folder in reversed(made):
                with suppress(OSError):  # somebody else uses it now
                    folder.rmdir()
            raise


def _kind(path: Path) -> int:
    """Return the mode of what is there, not of what it may lead to; 0: nothing is."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _nearest(folder: Path) -> Path:
    """Return the directory in which a path would begin to be made: itself, where it is there."""
    return next(each for each in (folder, *folder.parents) if _kind(each))


def _made(folder: Path) -> list[Path]:
    """Make a directory, and return which were not there, from the top down."""
    nearest = _nearest(folder)
    made = [each for each in reversed((folder, *folder.parents)) if nearest in each.parents]
    folder.mkdir(parents=True, exist_ok=True)
    return made


@contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AnalysisError(f"{path} cannot be written: {error.strerror}") from None
