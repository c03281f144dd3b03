"""What was applied last, and where it is kept: a quota file that ``sluice quotas apply`` writes.

Kafka's quotas have no place for it, as Kubernetes has in an annotation. It stands beside the desired quotas by default,
and says of which target it is.
"""

import json
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.document import read_text
from proxy.manage import quota_file
from quotas.policy import Policy
from quotas.stores.base import StoreError
from quotas.stores.file import parse

_FIRST_LINE: Final = re.compile(
    r"# What sluice quotas apply has made of (\".*\")\. It writes this file; do not edit it\."
)


class RecordError(StoreError):
    """A record cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a file says was applied; without a policy where there is no file."""

    path: Path
    policy: Policy | None
    is_ours: bool
    """It may be written: there is none, or apply has written it."""


def beside(desired: Path) -> Path:
    """Return where the record of a desired file is by default."""
    return desired.with_name(f"{desired.stem}.applied{desired.suffix or '.yaml'}")


def _target(text: str) -> object:
    """Return what a first line names; the text itself where somebody has edited it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read(path: Path, source: str) -> Record:
    """Return the record at ``path``, of what was applied to ``source``. Raises ConfigError, RecordError."""
    if not path.exists():
        return Record(path, None, is_ours=True)
    text = read_text(path)
    found = _FIRST_LINE.match(text)
    if found is not None and _target(found[1]) != _named(source, path):
        raise RecordError(
            f"{path}:1: is what was applied to {found[1]}, and not to {_quoted(source, path)}; "
            "keep a record for each target (--last-applied)"
        )
    return Record(path, parse(str(path), text).policy, is_ours=found is not None)


def require_writable(record: Record) -> None:
    """Make sure before anything is applied that the record can be written then. Raises RecordError."""
    if record.is_ours and not os.access(record.path.absolute().parent, os.W_OK):
        raise RecordError(
            f"{record.path}: cannot be written: let this user write to the folder, or give --last-applied"
        )


def write(record: Record, source: str, policy: Policy) -> bool:
    """Write what is applied now, whole or not at all; return whether it was another one. Raises RecordError."""
    if record.policy is not None and record.policy.limits == policy.limits:
        return False
    text, _ = quota_file.write(policy)
    head = (
        f"# What sluice quotas apply has made of {_quoted(source, record.path)}. It writes this file; do not edit it.\n"
    )
    folder = record.path.absolute().parent
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{record.path.name}.", dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(head + text)
                os.fchmod(descriptor, 0o644)
            Path(name).replace(record.path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        reason = str(error.strerror or error).lower()
        raise RecordError(f"{record.path}: the record was not written: {reason}; apply again") from None
    return True


def _quoted(source: str, path: Path) -> str:
    return json.dumps(_named(source, path))


def _named(source: str, path: Path) -> str:
    """Return a target's name as it is on every machine: a file by its path from the record."""
    if "://" in source:
        return source
    return os.path.relpath(source, path.absolute().parent)
