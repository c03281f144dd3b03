"""Usage records as they are shipped: documents of column arrays, numbered (docs/usage-records.md)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import orjson

from config.settings import Settings
from proxy.usage.records import Columns
from quotas.rate import Window

VERSION: Final = 1
_KAFKAS: Final = Window()
"""The default of brokers."""


@dataclass(frozen=True, slots=True)
class Document:
    """A usage record in JSON, ready to be shipped."""

    seq: int
    rows: int
    value: bytes


def same_fields(settings: Settings, instance: str) -> dict[str, object]:
    """Return the fields that are the same in all documents of one process, until the mode is switched."""
    window, controller = settings.quotas.window, settings.quotas.controller_window
    fields: dict[str, object] = {
        "v": VERSION,
        "cluster": settings.cluster.name,
        "instance": instance,
        "boot": str(uuid4()),
        "mode": settings.quotas.mode,
        "samples": window.samples,
        "sample_ms": window.size_ms,
    }
    if settings.owners is not None:
        fields["owned"] = 1
    if (controller.samples, controller.size_ms) != (_KAFKAS.samples, _KAFKAS.size_ms):
        fields |= {"controller_samples": controller.samples, "controller_sample_ms": controller.size_ms}
    return fields


class Documents:
    """Creates documents from columns, with the ``same_fields`` in each. ``dropped()`` returns how many (documents,
    rows) were lost so far.
    """

    def __init__(self, fields: Mapping[str, object], dropped: Callable[[], tuple[int, int]]) -> None:
        self._fields = fields
        self._dropped = dropped
        self._seq = 0

    def set_mode(self, mode: str) -> None:
        """Write another mode from the next document on."""
        self._fields = {**self._fields, "mode": mode}

    def document(self, columns: Columns, begin_ms: int, interval_ms: int, worker: int | None = None) -> Document:
        """Return the next document, for the interval that began at ``begin_ms`` (Unix time).

        ``worker``: of several workers, the one that counted.
        """
        dropped_documents, dropped_rows = self._dropped()
        seq = self._seq
        self._seq += 1
        document = {
            **self._fields,
            "seq": seq,
            "time_ms": begin_ms,
            "interval_ms": interval_ms,
            "dropped_documents": dropped_documents,
            "dropped_rows": dropped_rows,
            "rows": columns,
        }
        if worker is not None:
            document["worker"] = worker
        return Document(seq, len(columns["listener"]), _encoded(document))


def _encoded(document: dict[str, object]) -> bytes:
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        # A name with a lone surrogate cannot be encoded in UTF-8: json can write it, and ``replace`` makes it valid.
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
