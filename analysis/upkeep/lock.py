"""A lock for programs that change a warehouse: a file in the table, renewed while the work goes on.

A process takes the lock by creating a file with the next number; the highest number has it. The last file stays and
says that its work is over, so a number is never used twice, and a process that lost the lock overwrites only its own.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from py4j.protocol import Py4JError

from analysis.errors import AnalysisError, RunError
from analysis.spark.folder import Folder, FolderEntry

_NAME: Final = ".upkeep-lock-"
_STALE_S: Final = 600
"""A process that has not renewed its lock for this long is considered dead."""
_RENEWED_S: Final = 30.0
_SETTLED_S: Final = 2.0
"""Some S3 stores accept conditional writes and ignore the condition: after this time the last writer has the lock."""


class Lock:
    """A context manager; raises AnalysisError if another process has the lock. ``now_s`` is the wall clock."""

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
        # The result of ``create`` does not tell: after a lost response, the retry finds its own file.
        *older, last = self._files()
        if (holder := self._said_in(last)).get("id") != self._id:
            raise AnalysisError(f"{_said(holder)} has just started on this warehouse: try again when it has finished")
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
        """Raise RunError if another process has taken the lock over."""
        last = self._files()[-1:]
        if [file.path for file in last] != [self._name]:
            holder = _said(self._said_in(last[0]) if last else {})
            raise RunError(f"{holder} has taken over: this process made no progress for {_STALE_S // 60} minutes")

    def _renew(self) -> None:
        """Renew the lock in a thread: a step of the work may take long."""
        while not self._over.wait(_RENEWED_S):
            with suppress(AnalysisError, Py4JError, OSError):  # the next time may succeed, or the work fails as well
                self._usage.write(self._name, self._text())

    def _refuse_beside(self, holder: dict[str, Any]) -> None:
        silent_s = self._now_s() - holder.get("renewed_s", 0)
        here = holder.get("host") == socket.gethostname()
        if not holder.get("over") and silent_s < _STALE_S and not (here and not _runs(holder.get("pid", 0))):
            killed = "" if here else f"; if it was killed, {_STALE_S // 60} minutes after it was seen last"
            raise AnalysisError(
                f"{_said(holder)} is at work on this warehouse, and was seen {silent_s:.0f} s ago: try again when it "
                f"has finished{killed}"
            )

    def _files(self) -> list[FolderEntry]:
        """Return the lock files, the newest last."""
        return sorted(self._usage.entries(f"{_NAME}*"), key=_number)

    def _said_in(self, file: FolderEntry) -> dict[str, Any]:
        """Return the content of a lock file; if it is being written, only its time."""
        try:
            found = json.loads(self._usage.read(file.path))
        except (AnalysisError, ValueError):
            found = None
        return found if isinstance(found, dict) else {"renewed_s": file.modified_s}

    def _text(self) -> str:
        said = {"id": self._id, "what": self._what, "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps({**said, "renewed_s": self._now_s(), "over": self._over.is_set()})


def _number(file: FolderEntry) -> int:
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
