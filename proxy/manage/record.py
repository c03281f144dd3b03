"""The record of last applied quotas: a quota file that ``sluice quotas apply`` writes.

Kafka's quotas have no annotations to keep it in, as Kubernetes has. By default it is beside the desired quotas, and it
names its target.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.document import read_text
from proxy.manage import quota_file
from proxy.runtime.files import write_atomically
from quotas.policy import Policy
from quotas.stores.base import StoreError
from quotas.stores.file import parse

_FIRST_LINE: Final = re.compile(
    r"# What sluice quotas apply has made of (\".*\")\. It writes this file; do not edit it\."
)


@dataclass(frozen=True, slots=True)
class Record:
    """A record file; without a policy if there is no file."""

    path: Path
    policy: Policy | None
    is_ours: bool
    """It may be written: there is no file, or apply has written it."""


def beside(desired: Path) -> Path:
    """Return the default path of the record of a desired file."""
    return desired.with_name(f"{desired.stem}.applied{desired.suffix or '.yaml'}")


def read(path: Path, source: str) -> Record:
    """Return the record at ``path`` of quotas applied to ``source``. Raises ConfigError, StoreError."""
    if not path.exists():
        return Record(path, None, is_ours=True)
    text = read_text(path)
    found = _FIRST_LINE.match(text)
    if found is not None and found[1] != _quoted(source, path):
        message = f"{path}:1: records what was applied to {found[1]}, not to {_quoted(source, path)}"
        raise StoreError(f"{message}; keep a record for each target (--last-applied)")
    return Record(path, parse(str(path), text).policy, is_ours=found is not None)


def require_writable(record: Record) -> None:
    """Check before an apply that the record can be written afterwards. Raises StoreError."""
    if record.is_ours and not os.access(record.path.absolute().parent, os.W_OK):
        raise StoreError(f"{record.path}: cannot be written: let this user write to the folder, or give --last-applied")


def write(record: Record, source: str, policy: Policy) -> None:
    """Write the applied quotas atomically, unless the record has them already. Raises StoreError."""
    if record.policy is not None and record.policy.limits == policy.limits:
        return
    text, _ = quota_file.write(policy)
    head = (
        f"# What sluice quotas apply has made of {_quoted(source, record.path)}. It writes this file; do not edit it.\n"
    )
    try:
        write_atomically(record.path, head + text, mode=0o644)
    except OSError as error:
        reason = str(error.strerror or error).lower()
        raise StoreError(f"{record.path}: the record was not written: {reason}; apply again") from None


def _quoted(source: str, path: Path) -> str:
    """Return a target's name independent of the machine, in quotes: a file by its path relative to the record."""
    return json.dumps(source if "://" in source else os.path.relpath(source, path.absolute().parent))
