"""The format of quota files: YAML, with Kafka's property names.

Quotas that KRaft's AlterClientQuotas refuses (ClientQuotaControlManager) are refused here too, so that every quota of a
file could also be set in a cluster. In particular a quota is above 0: no rate stays below 0, and Kafka's own arithmetic
overflows there to "not throttled".
"""

import gc
from collections.abc import Callable, Iterator
from collections.abc import Mapping as ReadOnlyMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from config.document import Document, parse_document, read_text
from config.nodes import Mapping, Node, Scalar, Sequence
from config.problems import ConfigError, InvalidValue, InvalidValues, Problem, Steps, explained, suggestion
from config.units import parse_bytes, parse_name, parse_number, parse_whole
from quotas.entities import MAX_PREFIX_BYTES, Default, Entity, Group, Name, Prefix
from quotas.kinds import OF_CLIENT, OF_IP, QuotaKind, Written
from quotas.networks import canonical_ip
from quotas.policy import MOST_CAPS, PLAIN, Policy, Terms
from quotas.precedence import caps_at_once
from quotas.stores import likely_mistakes, terms
from quotas.stores.groups import Groups


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """The content of a file: the policy, the line of each entity's quota, and warnings."""

    policy: Policy
    lines: ReadOnlyMapping[Entity, int]
    warnings: tuple[Problem, ...]


def load(path: Path) -> LoadedPolicy:
    """Return the quotas in a file; raise ConfigError with every problem found."""
    return parse(str(path), read_text(path))


def parse(file: str, text: str) -> LoadedPolicy:
    """Parse text that was read from ``file``. Raises ConfigError with every problem found."""
    with _uncollected():
        return _Reader(
            parse_document(file, text, "write `quotas:` and a list below it, or `quotas: []` for no quotas")
        ).read()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the collector, which would look at a million objects again and again."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_PARSERS: Final[dict[Written, Callable[[str], float]]] = {
    Written.BYTES: parse_bytes,
    Written.NUMBER: parse_number,
    Written.WHOLE: parse_whole,
}
_ROOT: Final = ("quotas", "groups", "caps")
_NO_LIMITS: Final = frozenset(("entity", *terms.KEYS))
_DIMENSIONS: Final = ("user", "client-id", "ip", "user-group")
_NAMED: Final = ("user", "client-id")
_OF_CONFIGURATION: Final = frozenset(("cluster", "listeners"))
_ENTITY_FORM: Final = "write it like {user: alice, client-id: {default: true}} or {ip: 10.0.0.1}"


class _Reader:
    """Reads the quotas, and collects the problems of each."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.wrong = InvalidValues()
        self.limits: dict[Entity, dict[QuotaKind, float]] = {}
        self.terms: dict[Entity, Terms] = {}
        self.mistakes = likely_mistakes.Mistakes()
        self.groups = Groups(document, self.wrong, self.mistakes)
        self.lines: dict[Entity, int] = {}
        self.folded: dict[object, Entity] = {}

    def read(self) -> LoadedPolicy:
        if self.document.root.keys() >= _OF_CONFIGURATION:
            self.wrong.add((), "is a configuration, not a quota file", "pass it as --config")
        else:
            self._read_root(self.document.root)
        problems = [self.document.problem(steps, invalid) for steps, invalid in self.wrong.found]
        if problems or self.document.problems:
            raise ConfigError([*self.document.problems, *problems])
        return LoadedPolicy(Policy(self.limits, self.terms, self.groups.users), self.lines, tuple(self._warnings()))

    def _read_root(self, root: Mapping) -> None:
        for key in root:
            if key not in _ROOT:
                self.wrong.add((key,), "unknown key", suggestion(key, _ROOT), of_key=True)
        if "groups" in root:
            self.groups.read(root["groups"])
        match root.get("quotas"):
            case Sequence() as entries:
                for index, entry in enumerate(entries):
                    self._read_quota(("quotas", index), entry)
            case Mapping() as entries if entries:
                self.wrong.add(("quotas",), "must be a list of quotas", "begin each quota with `- `")
            case _:
                self.wrong.add(("quotas",), "must be a list of quotas", "write `quotas: []` for none")
        if "caps" in root:  # after the quotas, because edits refer to those by index
            self._read_caps(root["caps"])
        used = {entity.user for entity in self.limits if isinstance(entity.user, Group)}
        for group in self.groups.users:
            if Group(group) not in used:
                self.mistakes.add(("groups", group), likely_mistakes.of_unused_group())

    def _read_caps(self, entries: Node) -> None:
        if not isinstance(entries, Sequence):
            self.wrong.add(
                ("caps",),
                "must be a list of caps",
                "write each like a quota; it applies in addition to the one that wins",
            )
            return
        for index, entry in enumerate(entries):
            self._read_quota(("caps", index), entry, cap=True)
        for kind in QuotaKind:
            of_kind = [entity for entity, limits in self.limits.items() if entity.cap and kind in limits]
            number = caps_at_once([(entity.user, entity.client_id) for entity in of_kind])
            if number > MOST_CAPS:
                message = f"up to {number} of {kind} may apply to one client; the most is {MOST_CAPS}"
                self.wrong.add(("caps",), message, "leave out kinds of entities, or prefixes of prefixes")

    def _read_quota(self, steps: Steps, quota: Node, *, cap: bool = False) -> None:
        if not isinstance(quota, Mapping):
            self.wrong.add(steps, "must be a quota", "write it like {entity: {user: alice}, producer_byte_rate: 1MiB}")
            return
        written = quota.get("entity")
        entity = self._read_entity(steps, written, cap=cap)
        of_ip = isinstance(written, Mapping) and "ip" in written
        limits = self._read_limits(steps, quota, of_ip=of_ip)
        found = PLAIN if quota.keys().isdisjoint(terms.KEYS) else self._read_terms(steps, quota, limits, of_ip=of_ip)
        for kind, limit in limits.items():
            self.mistakes.add((*steps, kind), likely_mistakes.of_limit(kind, limit, quota[kind], found.burst_ms))
        if entity is None:
            return
        if self.limits.setdefault(entity, limits) is not limits:
            what = "cap" if cap else "quota"
            first = f"the first {what} for {entity.describe()} is on line {self.lines[entity]}"
            self.wrong.add((*steps, "entity"), f"already has a {what}", f"put all its limits into one: {first}")
            return
        twin = self.folded.setdefault(likely_mistakes.folded(entity), entity)
        if twin is not entity:
            self.mistakes.add(
                (*steps, "entity"), likely_mistakes.of_case(f"{twin.describe()} on line {self.lines[twin]}")
            )
        if found != PLAIN:
            self.terms[entity] = found
        self.lines[entity] = quota.mark.line + 1

    def _read_entity(self, steps: Steps, written: Node, *, cap: bool) -> Entity | None:
        if not isinstance(written, Mapping) or not written:
            self.wrong.add((*steps, "entity"), "must name the entity of the quota", _ENTITY_FORM)
            return None
        names: dict[str, Name] = {}
        for dimension, name in written.items():
            try:
                names[dimension] = found = self._name(dimension, name)
                if isinstance(found, str):
                    self.mistakes.add((*steps, "entity", dimension), likely_mistakes.of_name(dimension, found))
            except InvalidValue as invalid:
                self.wrong.found.append(((*steps, "entity", dimension), invalid))
        if len(names) < len(written):
            return None
        if "user-group" in names and "user" in names:
            self.wrong.add((*steps, "entity"), "names both a user and a group", "write a quota for each")
            return None
        try:
            return Entity(names.get("user", names.get("user-group")), names.get("client-id"), names.get("ip"), cap)
        except ValueError as error:
            self.wrong.add((*steps, "entity"), str(error), _ENTITY_FORM)
            return None

    def _name(self, dimension: str, written: Node) -> Name:
        if isinstance(written, Scalar) and dimension in _NAMED:
            return parse_name(written)
        if dimension == "user-group":
            return self.groups.named(written)
        if dimension == "client-id" and isinstance(written, Mapping) and written.keys() == {"prefix"}:
            return _prefix(written["prefix"])
        return _name(dimension, written)

    def _read_limits(self, steps: Steps, quota: Mapping, *, of_ip: bool) -> dict[QuotaKind, float]:
        limits: dict[QuotaKind, float] = {}
        for key, value in quota.items():
            if key in _NO_LIMITS:
                continue
            try:
                kind = _kind(key, of_ip=of_ip)
                limits[kind] = _limit(kind, value)
            except InvalidValue as invalid:
                self.wrong.found.append(((*steps, key), invalid))
        if not limits and quota.keys() <= _NO_LIMITS:
            known = ", ".join(OF_IP if of_ip else OF_CLIENT)
            self.wrong.add(steps, "sets no limit", f"add one of {known}, or remove the quota")
        return limits

    def _read_terms(self, steps: Steps, quota: Mapping, limits: dict[QuotaKind, float], *, of_ip: bool) -> Terms:
        if not of_ip:
            return terms.read(steps, quota, limits, self.wrong, self._read_proposed)
        for key in quota.keys() & set(terms.KEYS):
            self.wrong.add((*steps, key), "is for quotas of users and client-ids", "leave it out", of_key=True)
        return PLAIN

    def _read_proposed(self, steps: Steps, key: str, value: Node) -> tuple[QuotaKind, float]:
        kind = _kind(key, of_ip=False)
        limit = _limit(kind, value)
        self.mistakes.add(steps, likely_mistakes.of_limit(kind, limit, value))
        return kind, limit

    def _warnings(self) -> Iterator[Problem]:
        """Yield each warning once, at its first place, so that a long file does not flood the log."""
        for (message, fix, name), places in self.mistakes.items():
            count = f" ({len(places)} times in this file)" if len(places) > 1 else ""
            yield self.document.problem(places[0], InvalidValue(message + count, fix, name=name))


def _name(dimension: str, written: Node) -> str | Default:
    if dimension not in _DIMENSIONS:
        raise InvalidValue("is not a kind of entity", suggestion(dimension, _DIMENSIONS), of_key=True)
    if isinstance(written, Mapping) and written == {"default": "true"}:
        return Default.DEFAULT
    if isinstance(written, Sequence):
        raise InvalidValue("must be one name", "write a quota for each")
    if not isinstance(written, Scalar):
        forms = "{default: true} for the default entity" + (
            ", or {prefix: team-a-}" if dimension == "client-id" else ""
        )
        raise InvalidValue("must be a name", f"write a name, or {forms}")
    try:
        return canonical_ip(written)
    except ValueError:
        # Kafka resolves a host name once, when the quota is set; a file would need to be loaded again for that.
        raise InvalidValue(f"{written!r} is not an IP address", "host names are not resolved") from None


def _prefix(written: Node) -> Prefix:
    if not isinstance(written, Scalar):
        raise InvalidValue("must be the beginning of client-ids", "write it like {prefix: team-a-}")
    prefix = parse_name(written)
    if len(prefix.encode(errors="surrogatepass")) > MAX_PREFIX_BYTES:
        raise InvalidValue("is too long for a prefix", f"{MAX_PREFIX_BYTES} bytes are the most")
    return Prefix(prefix)


def _kind(key: str, *, of_ip: bool) -> QuotaKind:
    known, others = (OF_IP, OF_CLIENT) if of_ip else (OF_CLIENT, OF_IP)
    if key in known:
        return known[key]
    if key in others:
        owner = "a user or client-id" if of_ip else "an ip"
        raise InvalidValue(f"is a limit of {owner}", f"this entity takes {', '.join(known)}", of_key=True)
    if key in _DIMENSIONS:
        raise InvalidValue("names the entity of the quota", f"write it as entity: {{{key}: ...}}", of_key=True)
    raise InvalidValue("unknown limit", suggestion(key, ["entity", *known, *terms.KEYS]), of_key=True)


def _limit(kind: QuotaKind, written: Node) -> float:
    if not isinstance(written, Scalar):
        form = "write it like 1MiB" if kind.row.written is Written.BYTES else "write a number"
        raise InvalidValue("must be a single value", form)
    return _parsed_limit(kind, written)


@lru_cache(maxsize=1024)  # a file of 100,000 quotas has few different limits
def _parsed_limit(kind: QuotaKind, written: str) -> float:
    form = kind.row.written
    try:
        with explained(written):
            limit = _PARSERS[form](written)
    except InvalidValue as invalid:
        invalid.hint = likely_mistakes.fix_of_rate(written) or invalid.hint
        raise
    if limit == 0:
        raise InvalidValue("must be above 0", "remove the line for no limit")
    if limit > form.value:
        raise InvalidValue(f"{written} is too large", f"the most is {form.value}")
    return limit
