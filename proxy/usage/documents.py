"""Usage records as they are shipped: documents of column arrays, numbered (docs/usage-records.md)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import orjson

from proxy.usage.records import Columns
from quotas.rate import Window

VERSION: Final = 1
KAFKAS: Final = Window()
"""The default of brokers."""


@dataclass(frozen=True, slots=True)
class Document:
    """A usage record in JSON, ready to be shipped."""

    seq: int
    rows: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """Fields that are the same in all documents of one process; the mode until it is switched."""

    cluster: str
    instance: str
    mode: str
    window: Window
    controller_window: Window = KAFKAS
    """The window of controller mutations; written only if it differs from Kafka's default."""
    owned: bool = False
    """Whether each broker has one owner among the instances, which counts for it; written only if so."""


class Documents:
    """Creates documents from columns. ``dropped()`` returns how many (documents, rows) were lost so far."""

    def __init__(self, origin: Origin, dropped: Callable[[], tuple[int, int]]) -> None:
        self.boot = str(uuid4())
        self._origin = origin
        self._dropped = dropped
        self._seq = 0

    def set_mode(self, mode: str) -> None:
        """Write another mode from the next document on."""
        self._origin = replace(self._origin, mode=mode)

    def document(self, columns: Columns, begin_ms: int, interval_ms: int, worker: int | None = None) -> Document:
        """Return the next document, for the interval that began at ``begin_ms`` (Unix time).

        ``worker``: of several workers, the one that counted.
        """
        origin = self._origin
        dropped_documents, dropped_rows = self._dropped()
        seq = self._seq
        self._seq += 1
        document = {
            "v": VERSION,
            "cluster": origin.cluster,
            "instance": origin.instance,
            "boot": self.boot,
            "seq": seq,
            "time_ms": begin_ms,
            "interval_ms": interval_ms,
            "mode": origin.mode,
            "samples": origin.window.samples,
            "sample_ms": origin.window.size_ms,
            "dropped_documents": dropped_documents,
            "dropped_rows": dropped_rows,
            "rows": columns,
        }
        if worker is not None:
            document["worker"] = worker
        if origin.owned:
            document["owned"] = 1
        if origin.controller_window != KAFKAS:
            document["controller_samples"] = origin.controller_window.samples
            document["controller_sample_ms"] = origin.controller_window.size_ms
        return Document(seq, len(columns["listener"]), _encoded(document))


def _encoded(document: dict[str, object]) -> bytes:
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        # A name with a lone surrogate cannot be encoded in UTF-8: json can write it, and ``replace`` makes it valid.
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
