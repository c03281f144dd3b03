"""Java's classes, kept from one run to the next (application class-data sharing, JEP 350): a third of a short run.

The JVM maps an archive that is of its own version and of the jars that it has, and goes without one that is not.
"""

import hashlib
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from analysis.errors import AnalysisError

_PATIENCE_S: Final = 120
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""Of a thousand classes that cannot be kept, each is told otherwise."""


def archive(folder: Path, java: Path) -> Path:
    """Return the archive of this Spark and this Java in a folder, which is made. Raises AnalysisError."""
    import pyspark

    try:
        folder.mkdir(parents=True, exist_ok=True)
        real = java.resolve()
        known = hashlib.sha256(f"{real} {real.stat().st_mtime_ns} {Path(pyspark.__file__).parent}".encode())
    except OSError as error:
        raise AnalysisError(f"--java-cache {folder}: {error.strerror}") from None
    return folder.absolute() / f"spark-{pyspark.__version__}-{known.hexdigest()[:12]}.jsa"


def option(kept: Path) -> str:
    """Return what makes Java start from an archive, or, where it is not there yet, make it as it ends."""
    name = f"SharedArchiveFile={kept}" if kept.exists() else f"ArchiveClassesAtExit={_unfinished(kept)}"
    return f'"-XX:{name}" {_QUIET}'


def finish(kept: Path, java: "subprocess.Popen[Any]") -> None:
    """Let the JVM end, which makes the archive, and put it where others find it: whole, or not at all."""
    with suppress(OSError, subprocess.TimeoutExpired):
        if java.stdin is not None:
            java.stdin.close()
        java.wait(_PATIENCE_S)
        _unfinished(kept).replace(kept)


def _unfinished(kept: Path) -> Path:
    return kept.with_suffix(f".{os.getpid()}.part")
