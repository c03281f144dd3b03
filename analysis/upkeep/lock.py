"""One at a time: a file in the table that says who is at work, and is renewed while the work goes on.

Each who takes it makes a file with the next number, which only one can, and the highest number has it. The last file
stays, and says that its work is over: so a number is never given twice, and one that was held up for so long that
another has taken over can write over nothing but its own.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from py4j.protocol import Py4JError

from analysis.errors import AnalysisError, RunError
from analysis.spark.folder import Entry, Folder

_NAME: Final = ".upkeep-lock-"
_STALE_S: Final = 600
"""A lock that was not renewed for as long is of a process that is no more."""
_RENEWED_S: Final = 30.0
_SETTLED_S: Final = 2.0
"""Some that speak S3 take a condition and do not hold to it: who wrote last has it, when all have written."""


class Lock:
    """Held in a ``with``: raises AnalysisError where another process holds it. ``now_s`` is the wall clock."""

    def __init__(self, usage: Folder, what: str, now_s: Callable[[], float]) -> None:
        self._usage = usage
        self._what = what
        self._now_s = now_s
        self._id = uuid4().hex
        self._name = ""
        self._over = Event()
        self._renewal = Thread(target=self._renew, name="lock", daemon=True)

    def __enter__(self) -> Self:
        before = self._files()
        if before:
            self._refuse_beside(self._said_in(before[-1]))
        self._name = f"{_NAME}{_number(before[-1]) + 1 if before else 1}"
        self._usage.create(self._name, self._text())
        if not self._usage.is_on_disk:
            time.sleep(_SETTLED_S)
        # Not by what ``create`` says: an answer may be lost on its way, and then it finds its own file there.
        *older, last = self._files()
        if (holder := self._said_in(last)).get("id") != self._id:
            raise AnalysisError(f"{_said(holder)} was faster to begin on this warehouse: try again when it is over")
        for file in older:
            self._usage.remove(file.path)
        self._renewal.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._renewal.join()
        self._usage.write(self._name, self._text())

    def check(self) -> None:
        """Raise RunError where another process has taken it over."""
        last = self._files()[-1:]
        if [file.path for file in last] != [self._name]:
            holder = _said(self._said_in(last[0]) if last else {})
            raise RunError(f"{holder} has taken over, because this was held up for {_STALE_S // 60} minutes")

    def _renew(self) -> None:
        """Beside the work, of which a single step may take long: a directory is copied, Spark reads a day."""
        while not self._over.wait(_RENEWED_S):
            try:
                self._usage.write(self._name, self._text())
            except (AnalysisError, Py4JError, OSError):  # as it may be next time, or the work fails of it, too
                continue

    def _refuse_beside(self, holder: dict[str, Any]) -> None:
        silent_s = self._now_s() - holder.get("renewed_s", 0)
        here = holder.get("host") == socket.gethostname()
        if not holder.get("over") and silent_s < _STALE_S and not (here and not _runs(holder.get("pid", 0))):
            # Of this machine it is known that it runs.
            killed = "" if here else f"; if it was killed, {_STALE_S // 60} minutes after it was seen last"
            raise AnalysisError(
                f"{_said(holder)} is at work on this warehouse, and was seen {silent_s:.0f} s ago: try again when it "
                f"is over{killed}"
            )

    def _files(self) -> list[Entry]:
        """Return those of all who had it, as far as they are not removed, the last one last."""
        return sorted(self._usage.entries(f"{_NAME}*"), key=_number)

    def _said_in(self, file: Entry) -> dict[str, Any]:
        """Return who holds it; of a file that is just being written, since when."""
        try:
            found = json.loads(self._usage.read(file.path))
        except (AnalysisError, ValueError):
            found = None
        return found if isinstance(found, dict) else {"renewed_s": file.modified_s}

    def _text(self) -> str:
        said = {"id": self._id, "what": self._what, "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps({**said, "renewed_s": self._now_s(), "over": self._over.is_set()})


def _number(file: Entry) -> int:
    number = file.path.removeprefix(_NAME)
    return int(number) if number.isdecimal() else 0


def _said(holder: dict[str, Any]) -> str:
    return f"{holder.get('what', 'another program')} (process {holder.get('pid')} on {holder.get('host')})"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
