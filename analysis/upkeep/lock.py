"""One at a time: a file in the table that says who is at work, and is renewed while the work goes on."""

import json
import os
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from analysis.errors import AnalysisError, RunError
from analysis.spark.folder import Folder

_NAME: Final = ".upkeep-lock"
_STALE_S: Final = 600
"""A lock that was not renewed for as long is of a process that is no more."""
_RENEWED_S: Final = 30


class Lock:
    """Held in a ``with``: raises AnalysisError where another process holds it. ``now_s`` is the wall clock."""

    def __init__(self, usage: Folder, what: str, now_s: Callable[[], float]) -> None:
        self._usage = usage
        self._what = what
        self._now_s = now_s
        self._id = uuid4().hex
        self._renewed_s = 0.0

    def __enter__(self) -> Self:
        if not self._usage.create(_NAME, self._text()):
            self._take_over(self._holder())
        self._renewed_s = self._now_s()
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holder().get("id") == self._id:
            self._usage.remove(_NAME)

    def keep(self) -> None:
        """Renew it where that is due. Raises RunError where another process has taken it over."""
        if self._now_s() - self._renewed_s >= _RENEWED_S:
            self._check()
            self._usage.write(_NAME, self._text())
            self._renewed_s = self._now_s()

    def _check(self) -> None:
        holder = self._holder()
        if holder.get("id") != self._id:
            raise RunError(f"{_said(holder)} has taken over, because this was held up for {_STALE_S // 60} minutes")

    def _take_over(self, holder: dict[str, Any]) -> None:
        silent_s = self._now_s() - holder.get("renewed_s", 0)
        here = holder.get("host") == socket.gethostname()
        if silent_s < _STALE_S and not (here and not _runs(holder.get("pid", 0))):
            raise AnalysisError(
                f"{_said(holder)} is at work on this warehouse, and was seen {silent_s:.0f} s ago: try again when it "
                f"is over; if it was killed, {_STALE_S // 60} minutes after it was seen last"
            )
        left = f"{_NAME}-{self._id}"  # who renames it has it, and a second one finds nothing to rename
        self._usage.move(_NAME, left)
        self._usage.remove(left)
        if not self._usage.create(_NAME, self._text()):
            raise AnalysisError(f"{_said(self._holder())} was faster to take this warehouse over: try again later")

    def _holder(self) -> dict[str, Any]:
        try:
            found = json.loads(self._usage.read(_NAME))
        except (AnalysisError, ValueError):  # gone meanwhile, or written half by one that was killed
            return {}
        return found if isinstance(found, dict) else {}

    def _text(self) -> str:
        said = {"id": self._id, "what": self._what, "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps({**said, "renewed_s": self._now_s()})


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
