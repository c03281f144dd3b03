"""The one writer of a warehouse: a queue of those that want to write, and a journal of changes.

A process joins the queue by creating a file with the next number, and is the writer when all with lower numbers are
over. The last file stays and says that its work is over, so that numbers grow: a writer whose number is its last one
plus one knows that nobody else has written in between.

Changes become visible by the journal alone. It is written in one step and then followed; the next writer completes one
that a kill interrupted, before it reads anything.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError, RunError
from analysis.spark.folder import Folder, FolderEntry
from analysis.spark.progress import to_stderr

ASIDE: Final = ".writing"
"""The folder for files that are not visible yet; emptied when a writer begins."""
_JOURNAL: Final = ".journal.json"
_MARK: Final = "sluice-warehouse.json"
_LAYOUT_VERSION: Final = 3
"""2 had rows with names, and no ``keys``."""
_NAME: Final = ".writer-"
_WAITING, _WRITING, _OVER = "waiting", "writing", "over"
_STALE_S: Final = 600
"""A process that has not renewed its file for this long is considered dead."""
_RENEWED_S: Final = 30.0
_SETTLED_S: Final = 2.0
"""Some S3 stores accept conditional writes and ignore the condition: after this time the last writer has the file."""
_PATIENCE_S: Final = 3600
_SILENT_S: Final = 5
"""A shorter wait is not worth a line: two ingests wait for each other's batches."""
_POLL_S: Final = 0.3
_ours: set[str] = set()
"""Ids of the writers in this process. Another one with its number is of a process before a restart of a container."""


def _now_s() -> float:
    return time.time()  # noqa: TID251  compared with times of other machines


class Writer:
    """A context manager. Waits for its turn; raises RunError if that takes an hour. ``now_s`` is the wall clock."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        what: str,
        now_s: Callable[[], float] = _now_s,
    ) -> None:
        self.folder = Folder(spark, warehouse)
        self.number = 0
        self._what = what
        self._now_s = now_s
        self._id = uuid4().hex
        self._state = _WAITING
        self._since_s = now_s()
        self._ended = Event()
        self._writes_file = Lock()
        self._renewal = Thread(target=self._renew, name="writer", daemon=True)

    def __enter__(self) -> Self:
        _ours.add(self._id)
        self._join()
        self._renewal.start()
        try:
            self._wait()
            for number, _ in self._queue():
                if number < self.number:
                    self.folder.remove(f"{_NAME}{number}")
            require_version(self.folder)
            self._follow()
            self.folder.remove(ASIDE)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewal.join()
        with suppress(AnalysisError, Py4JError, OSError):  # Java may have ended; this process will soon
            if self._state == _WAITING:
                self.folder.remove(self._name)
            else:
                self._say(_OVER)
        _ours.discard(self._id)

    def publish(
        self,
        moves: Mapping[str, str] | None = None,
        writes: Mapping[str, str] | None = None,
        removes: Sequence[str] = (),
    ) -> None:
        """Move directories, then write files, then remove files and directories: all of it, though it may be killed.

        Raises RunError if another process has taken over.
        """
        self.check()
        self.folder.write(_JOURNAL, json.dumps({"moves": moves or {}, "writes": writes or {}, "removes": removes}))
        self._follow()

    def check(self) -> None:
        """Raise RunError if another process has taken over."""
        queue = self._queue()
        taken = [said for number, said in queue if number > self.number and said["state"] != _WAITING]
        if taken or self.number not in dict(queue):
            holder = _named(taken[0] if taken else {})
            raise RunError(f"{holder} has taken over: this process made no progress for {_STALE_S // 60} minutes")

    def _follow(self) -> None:
        if not self.folder.exists(_JOURNAL):
            return
        try:
            journal = json.loads(self.folder.read(_JOURNAL))
            moves, writes, removes = journal["moves"], journal["writes"], journal["removes"]
        except (ValueError, TypeError, KeyError):  # it is cut off: nothing of it has been done
            moves, writes, removes = {}, {}, ()
        for source, place in moves.items():
            if self.folder.exists(source):
                self.folder.move(source, place)
        for file, content in writes.items():
            self.folder.write(file, content)
        for place in removes:
            self.folder.remove(place)
        self.folder.remove(_JOURNAL)

    @property
    def _name(self) -> str:
        return f"{_NAME}{self.number}"

    def _join(self) -> None:
        """Create the file with the next number."""
        self.number = max(dict(self._queue()), default=0) + 1
        # The result of ``create`` does not tell: after a lost response, the retry finds its own file.
        while not self.folder.create(self._name, self._text()) or not self.folder.is_on_disk:
            time.sleep(0 if self.folder.is_on_disk else _SETTLED_S)
            if dict(self._queue()).get(self.number, {}).get("id") == self._id:
                break
            self.number += 1

    def _wait(self) -> None:
        """Wait until nobody is ahead, neither before nor after this has said that it writes."""
        begun_s, is_told = self._now_s(), False
        while (ahead := self._ahead()) or self._state != _WRITING:
            if not ahead:
                self._say(_WRITING)
                continue
            if self._state == _WRITING:
                self._say(_WAITING)
            waited_s = self._now_s() - begun_s
            since = f"{datetime.fromtimestamp(ahead.get('since_s', 0), UTC):%Y-%m-%d %H:%M:%S} UTC"
            holder = f"{_named(ahead)} has been writing to this warehouse since {since}"
            if waited_s >= _PATIENCE_S:
                raise RunError(f"{holder}: end it if it hangs, and try again")
            if waited_s >= _SILENT_S and not is_told:
                is_told = True
                to_stderr(f"{self._what} waits: {holder}")
            time.sleep(_POLL_S)

    def _ahead(self) -> dict[str, Any]:
        """Return what the first living process before this one says; {}: there is none."""
        queue = self._queue()
        if any(number > self.number and said["state"] != _WAITING for number, said in queue):
            # This number was used before, and its file removed, between a look at the queue and its creation.
            with self._writes_file:
                self.folder.remove(self._name)
                self._state = _WAITING
                self._join()
            return self._ahead()
        return next((said for number, said in queue if number < self.number and self._is_alive(said)), {})

    def _is_alive(self, said: Mapping[str, Any]) -> bool:
        if said.get("state") == _OVER or self._now_s() - said.get("renewed_s", 0) >= _STALE_S:
            return False
        if said.get("machine") != _machine():
            return True
        return said.get("id") in _ours if said.get("pid") == os.getpid() else _runs(said.get("pid", 0))

    def _queue(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the numbers in use, ascending, and the contents of their files."""
        files = self.folder.entries(f"{_NAME}*[0-9]")
        return sorted(((int(file.path.removeprefix(_NAME)), self._said_in(file)) for file in files), key=itemgetter(0))

    def _said_in(self, file: FolderEntry) -> dict[str, Any]:
        """Return the content of a file of the queue; if it is being written, only its time."""
        unread = {"state": _WAITING, "since_s": file.modified_s, "renewed_s": file.modified_s}
        try:
            return {**unread, **json.loads(self.folder.read(file.path))}
        except (AnalysisError, ValueError, TypeError):
            return unread

    def _renew(self) -> None:
        """Renew the file in a thread: a step of the work may take long."""
        while not self._ended.wait(_RENEWED_S):
            # The next time may succeed, or the work fails as well.
            with suppress(AnalysisError, Py4JError, OSError), self._writes_file:
                self.folder.write(self._name, self._text())

    def _say(self, state: str) -> None:
        with self._writes_file:
            self._state, self._since_s = state, self._now_s()
            self.folder.write(self._name, self._text())

    def _text(self) -> str:
        who = {"id": self._id, "what": self._what, "host": socket.gethostname(), "pid": os.getpid()}
        times = {"since_s": self._since_s, "renewed_s": self._now_s()}
        return json.dumps({**who, "machine": _machine(), "state": self._state, **times})


def require_version(folder: Folder) -> None:
    """Mark a new warehouse with the version of its tables. Raises AnalysisError for one of another version."""
    try:
        version = json.loads(folder.read(_MARK))["version"] if folder.exists(_MARK) else None
    except (ValueError, TypeError, KeyError):  # cut off by a full disk
        version = None
    if version is None:
        folder.write(_MARK, json.dumps({"version": _LAYOUT_VERSION}) + "\n")
    elif version != _LAYOUT_VERSION:
        raise AnalysisError(
            f"{folder.uri} is a warehouse of version {version}, and this Sluice knows {_LAYOUT_VERSION}: "
            "ingest the records into a new one, or take the Sluice that wrote it"
        )


def _named(said: Mapping[str, Any]) -> str:
    return f"{said.get('what', 'another program')} (process {said.get('pid')} on {said.get('host')})"


def _machine() -> str:
    """Return the host, and the namespace in which ids of processes mean something: containers may share a host name."""
    with suppress(OSError):
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
