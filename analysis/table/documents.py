"""Documents that rows came in, by their numbers: which are stored, and which are missing between them.

Each run of a proxy (a boot) numbers its documents from 0, without gaps. So a number that is not stored, between two
that are, is a document that was lost. What is not known by numbers: how many came after the last one of a boot that was
killed, and, of a boot whose first documents nobody has, whether there were any.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.table import hashes
from analysis.table.arrays import Ints, added, ints, with_columns

BOOT: Final = ("cluster", "instance", "boot")
SPAN: Final = {"first": "min", "last": "max", "begin_ms": "min", "end_ms": "max"}
"""Of documents whose numbers follow each other: the first and the last number, and the time that they cover."""


def of_rows(rows: pa.Table, keys: Sequence[str], how: Mapping[str, str]) -> pa.Table:
    """Return ``united`` lines of rows that have ``seq``, ``keys`` (BOOT among them), SPAN but for numbers, and more.

    ``how`` says what else is added up. Rows of one document have the same keys, but for what tells rows apart.
    """
    seq = ints(rows, "seq")
    numbered = with_columns(rows, {"first": seq, "last": seq})
    return united(added(numbered, (*keys, "seq"), {**SPAN, **how}), keys, how)


def united(lines: pa.Table, keys: Sequence[str], how: Mapping[str, str]) -> pa.Table:
    """Add up lines of SPAN whose documents overlap, or follow each other: then no document is in two of them."""
    lines, run = _by_number(lines, keys)
    apart = (np.diff(run) != 0) | (ints(lines, "first")[1:] - 1 > _reached(lines, run)[:-1])
    pieces = with_columns(lines, {"piece": np.concatenate(([0], np.cumsum(apart)))[: len(lines)]})
    return added(pieces, (*keys, "piece"), {**SPAN, **how}).drop_columns("piece")


def documents(lines: pa.Table) -> Ints:
    """Return how many documents each line of ``united`` stands for."""
    return ints(lines, "last") - ints(lines, "first") + 1


def after_gaps(lines: pa.Table) -> pa.Table:
    """Return ``united`` lines of whole boots by their numbers, with ``missing``: how many are, just before each.

    ``since_ms`` is where what is stored before ends; where nothing is, the line's own begin. ``is_first``: of its boot.
    """
    lines, boot = _by_number(lines, BOOT)
    reached = _reached(lines, boot)
    is_first = np.diff(boot, prepend=-1) != 0
    before = np.roll(reached, 1)
    missing = np.where(is_first, 0, np.maximum(ints(lines, "first") - before - 1, 0))
    since_ms = np.where(is_first, ints(lines, "begin_ms"), np.roll(ints(lines, "end_ms"), 1))
    return with_columns(lines, {"missing": missing, "since_ms": since_ms, "is_first": is_first})


def _by_number(lines: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, Ints]:
    """Return the lines with those of the same keys together, by their numbers; and a number for the keys of each."""
    _, run = np.unique(hashes.of_columns(lines, keys), return_inverse=True)
    order = np.lexsort((ints(lines, "last"), ints(lines, "first"), run))
    return lines.take(pa.array(order)), run[order]


def _reached(lines: pa.Table, run: Ints) -> Ints:
    """Return the last number up to each line, of those of its run."""
    reached = ints(lines, "last").copy()
    for each in np.split(reached, np.flatnonzero(np.diff(run)) + 1):
        np.maximum.accumulate(each, out=each)
    return reached
