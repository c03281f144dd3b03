"""The quota file that ``recommend`` writes: always a new one, whole or not at all."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.errors import AnalysisError


def refuse_path(path: Path) -> None:
    """Raise AnalysisError if the file exists or cannot be created: before the work begins."""
    with _writing(path):
        with tempfile.TemporaryFile(dir=path.parent):  # creating a file is the only way to know whether that works
            pass
        if path.exists() or path.is_symlink():
            raise AnalysisError(f"{path} exists already: write to another file, compare, and move it")


def create(path: Path, text: str) -> None:
    """Write a file. Raises AnalysisError if it has come into existence meanwhile."""
    with _writing(path):
        file = path.open("x", encoding="utf-8", newline="")
        try:
            with file:
                file.write(text)
        except OSError:
            path.unlink()
            raise


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AnalysisError(f"{path} cannot be written: {error.strerror}") from None
