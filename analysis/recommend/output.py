"""The file that quotas are written to: never over another one unless that is asked for, whole or not at all."""

import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from analysis.errors import AnalysisError


def refuse_place(path: Path, *, force: bool) -> None:
    """Keep a quota file that may be in force from being lost, and a link from becoming a file.

    Raises AnalysisError for these, and for what cannot be written.
    """
    with _said(path):
        # Whether a file can be made, only making one says; this one has no name.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.is_symlink():
            raise AnalysisError(f"{path} is a link, as Kubernetes mounts a ConfigMap: write to another file")
        if path.exists() and not path.is_file():
            raise AnalysisError(f"{path} is no file: write to a file")
        if path.exists() and not force:
            raise AnalysisError(
                f"{path} is there already: write to another file, compare, and take over what you want; "
                "--force replaces it"
            )


def write(path: Path, text: str) -> None:
    """Write all of a file or nothing: a proxy that reads it meanwhile sees the old one or the new one."""
    # A random name, opened only if it is free: a link in its place would be followed.
    beside = path.with_name(f".{uuid4().hex}.new")
    with _said(path):
        try:
            with beside.open("x", encoding="utf-8", newline="") as file:
                if path.exists():
                    beside.chmod(stat.S_IMODE(path.stat().st_mode))
                file.write(text)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AnalysisError(f"{path} cannot be written: {error.strerror}") from None
