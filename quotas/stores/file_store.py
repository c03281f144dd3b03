"""The file store: loads a quota file, notices changes, and edits it in place."""

import codecs
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from config.document import read_text
from config.problems import ConfigError
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Limits, Outcome, Refusal
from quotas.stores.base import ChangedMeanwhileError, Loaded, QuotaStore, UnreadableError, UnwritableError, outcome_of
from quotas.stores.edit import edited, number
from quotas.stores.file import LoadedPolicy, parse
from quotas.stores.replacing import Identity, identity, replace_if

_MOST_RENAMED: Final = 8
"""Polls (a second's worth) that wait for a file to stay the same."""
_NEVER: Final = (-1, -1, -1, -1)
_ATTRIBUTE: Final = "user.sluice.author"
"""The extended attribute with the author of a file, and of which version: an editor that changes the file in place
leaves one that does not match, and one that renames leaves none.
"""
_LONGEST_AUTHOR: Final = 200


class FileStore(QuotaStore):
    """Quotas in a YAML file (docs/quotas.md)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._loaded: Identity | None = _NEVER
        """The file's identity at the last load, successful or not."""
        self._looked: Identity | None = _NEVER
        self._renamed = 0
        """Consecutive polls that each found another file."""
        self._known: tuple[str, LoadedPolicy] | None = None
        """The last version read and its policy: usually the one to be changed next."""

    def _load(self) -> Loaded:
        # Taken before reading, so that a write in between is seen as a change.
        self._loaded = identity(self._path)
        _, version, loaded = self._read()
        who = _author(self._path, version)
        return Loaded(loaded.policy, version, str(self._path), loaded.lines, loaded.warnings, author=who)

    def changed(self) -> bool:
        """As in QuotaStore; a file that differs from one poll to the next is still being written.

        A file that is replaced by rename again and again is an exception: each one is complete, and it may never stop.
        """
        before, self._looked = self._looked, identity(self._path)
        renamed = before is not None and self._looked is not None and before[:2] != self._looked[:2]
        self._renamed = self._renamed + 1 if renamed else 0
        if self._renamed >= _MOST_RENAMED:
            self._renamed = 0
            return self._looked != self._loaded
        return self._looked == before != self._loaded

    def write(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        self._require_own_file()
        found = identity(self._path)
        text, version, loaded = self._read()
        if alteration.version not in (None, version):
            raise ChangedMeanwhileError(f"{self._path}: has been changed: load it and try again")
        policy = loaded.policy
        outcomes: dict[Entity, Outcome] = {}
        for entity, limits in wanted.items():
            refused = _unwritable(limits) or _proposed_for(policy, entity, limits)
            outcomes[entity] = Outcome(refused) if refused else outcome_of(entity, policy.limits.get(entity), limits)
        changes = {
            entity: {each.kind: each.new for each in outcome.altered}
            for entity, outcome in outcomes.items()
            if outcome.altered
        }
        if changes:
            text, after = self._edited(text, policy, changes)
            if not alteration.validate_only:
                self._write(text, found, alteration.who)
                self._known = after
        return outcomes

    def _edited(
        self, text: str, policy: Policy, changes: Mapping[Entity, Limits]
    ) -> tuple[str, tuple[str, LoadedPolicy]]:
        """Return the changed text and its policy, after checking that it parses to exactly the wanted limits."""
        changed = {entity: _merged(policy.limits.get(entity, {}), limits) for entity, limits in changes.items()}
        limits = {entity: limits for entity, limits in {**policy.limits, **changed}.items() if limits}
        terms = {entity: terms for entity, terms in policy.terms.items() if entity in limits}
        uneditable = UnwritableError(
            f"{self._path}: is written in a form that cannot be edited automatically; change it by hand"
        )
        try:
            after = edited(text, policy.limits, changes)
            loaded = parse(str(self._path), after)
        except (ValueError, ConfigError) as error:
            raise uneditable from error
        if _as_floats(loaded.policy.limits) != _as_floats(limits) or loaded.policy.terms != terms:
            raise uneditable
        return after, (_version(after), loaded)

    def _read(self) -> tuple[str, str, LoadedPolicy]:
        """Return the text of the file, its version, and its policy."""
        try:
            text = read_text(self._path)
            version = _version(text)
            if self._known is None or self._known[0] != version:
                self._known = version, parse(str(self._path), text)
        except ConfigError as error:
            raise UnreadableError(error.problems) from None
        return text, *self._known

    # ------------------------------------------------------------------------------------------------- writing

    def _require_own_file(self) -> None:
        if self._path.is_symlink():
            raise UnwritableError(
                f"{self._path}: is a symbolic link to {self._path.readlink()}, as Kubernetes mounts a ConfigMap: "
                "change the quotas where that comes from, or let quotas.store.path name the file itself"
            )
        if self._path.exists() and not os.access(self._path, os.W_OK):
            raise UnwritableError(f"{self._path}: is read-only for the user with id {os.geteuid()}: let it write there")

    def _write(self, text: str, found: Identity | None, who: str) -> None:
        """Replace the file atomically, if it is still the one that was ``found``."""
        try:
            self._write_beside(text, found, who)
        except OSError as error:
            reason = str(error.strerror or error).lower()
            advice = f"let the user with id {os.geteuid()} write to {self._path.parent}, and give the file to it"
            raise UnwritableError(f"{self._path}: cannot be written: {reason}: {advice}") from None

    def _write_beside(self, text: str, found: Identity | None, who: str) -> None:
        path = self._path
        before = path.stat()
        with path.open("rb") as file:
            mark = file.read(len(codecs.BOM_UTF8))
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        beside = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write((mark if mark == codecs.BOM_UTF8 else b"") + text.encode())
                file.flush()
                ours = os.fstat(descriptor)
                if (ours.st_uid, ours.st_gid) != (before.st_uid, before.st_gid):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
                _sign(descriptor, who, _version(text))
                os.fsync(descriptor)
            self._put_in_place(beside, found)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _put_in_place(self, beside: Path, found: Identity | None) -> None:
        if found is None or not replace_if(self._path, found, beside):
            raise ChangedMeanwhileError(f"{self._path}: has been changed meanwhile: load it and try again")


def _sign(descriptor: int, who: str, version: str) -> None:
    """Store the author in the open file; does nothing if the file system has no attributes."""
    with suppress(OSError, AttributeError):
        os.setxattr(descriptor, _ATTRIBUTE, json.dumps([who[:_LONGEST_AUTHOR], version]).encode())


def _author(path: Path, version: str) -> str:
    """Return the author if the file still has this version; "" if unknown."""
    try:
        who, signed = json.loads(os.getxattr(path, _ATTRIBUTE))
    except (OSError, AttributeError, ValueError, TypeError, RecursionError):
        return ""
    return who[:_LONGEST_AUTHOR] if isinstance(who, str) and signed == version else ""


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _merged(before: Mapping[QuotaKind, float], limits: Limits) -> dict[QuotaKind, float]:
    return {kind: limit for kind, limit in {**before, **limits}.items() if limit is not None}


def _as_floats(limits: Mapping[Entity, Mapping[QuotaKind, float]]) -> dict[Entity, dict[QuotaKind, float]]:
    return {entity: {kind: float(limit) for kind, limit in of.items()} for entity, of in limits.items()}


def _proposed_for(policy: Policy, entity: Entity, limits: Limits) -> Refusal | None:
    """Return why a limit must stay: a proposed one depends on it. Removing the last limit removes the whole quota."""
    terms = policy.terms.get(entity)
    if terms is None or not _merged(policy.limits[entity], limits):
        return None
    for kind, limit in limits.items():
        if limit is None and kind in terms.proposed:
            return Refusal(kind.value, "has another limit proposed beside it in the quota file", "remove that by hand")
    return None


def _unwritable(limits: Limits) -> Refusal | None:
    for kind, limit in limits.items():
        if limit is not None and number(limit) is None:
            fix = "remove it for no limit" if limit == float("inf") else "round it"
            return Refusal(
                kind.value, f"{limit:.17g} has more digits than a quota file takes (19, and 9 decimals)", fix
            )
    return None
