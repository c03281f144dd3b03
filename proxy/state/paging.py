"""Parameters of lists: which rows, in which order, and how many."""

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import Any, Final, NamedTuple

from config.units import without_brackets
from proxy.state.resources import FILTERS, SEARCHED, Resource
from proxy.state.rows import Page, ThrottledRow
from quotas.kinds import QuotaKind

MOST: Final = 1000
MOST_OFFSET: Final = 1_000_000
MOST_TEXT: Final = 256
DEFAULT: Final = 100


class BadParameterError(ValueError):
    """A parameter is wrong; the text names it and what is allowed, or (``status`` is 404) what is missing."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Query(NamedTuple):
    sort: str
    """A field; "" leaves the order."""
    is_descending: bool = False
    limit: int = DEFAULT
    offset: int = 0
    filters: Mapping[str, str | int] = {}
    """``peer`` is without the brackets of an IPv6 address."""
    q: str = ""
    """In lower case."""

    @property
    def most(self) -> int:
        """The number of rows up to the end of the page."""
        return self.offset + self.limit


def parse(resource: Resource, parameters: Mapping[str, str]) -> Query:
    """Return the query in a request's parameters. Raises BadParameterError."""
    allowed = resource.parameters
    for name, value in parameters.items():
        if name not in allowed:
            raise BadParameterError(f"{name[:64]!a} is not a parameter here; allowed: {', '.join(allowed) or 'none'}")
        if len(value) > MOST_TEXT:
            raise BadParameterError(f"{name}: is longer than {MOST_TEXT} characters")
    sort = parameters.get("sort", resource.sort)
    if (field := sort.removeprefix("-")) not in resource.sorts and resource.sorts:
        raise BadParameterError(f"sort: {sort[:64]!a} is not a field to sort by; allowed: {', '.join(resource.sorts)}")
    filters: dict[str, str | int] = {name: parameters[name] for name in FILTERS if name in parameters}
    if "peer" in filters:
        filters["peer"] = without_brackets(parameters["peer"])
    if "broker" in filters:
        filters["broker"] = _number("broker", parameters, 0, 0, 2**31 - 1)
    if (kind := filters.get("kind")) is not None and kind not in list(QuotaKind):
        raise BadParameterError(f"kind: {str(kind)[:64]!a} is no quota kind; allowed: {', '.join(QuotaKind)}")
    if parameters.get("all", "0") not in ("0", "1"):
        raise BadParameterError("all: allowed are 1 (all instances) and 0 (this one)")
    query = Query(
        field,
        sort.startswith("-"),
        _number("limit", parameters, DEFAULT, 1, MOST),
        _number("offset", parameters, 0, 0, MOST_OFFSET),
        filters,
        parameters.get("q", "").casefold(),
    )
    if parameters.get("all") == "1" and query.most > MOST:
        raise BadParameterError(f"offset: with all=1, offset and limit are {MOST} together at most; use a filter")
    return query


def _number(name: str, parameters: Mapping[str, str], default: int, least: int, most: int) -> int:
    said = parameters.get(name)
    if said is None:
        return default
    if said.isascii() and said.isdecimal() and len(said) <= len(str(most)) and least <= int(said) <= most:
        return int(said)
    raise BadParameterError(f"{name}: {said[:64]!a} is not a whole number from {least} to {most}")


def matching(query: Query, row: type) -> Callable[[Any], bool]:
    """Return whether a row is one that the query is for, as far as its fields tell.

    An empty name is none. A throttled counter of all client-ids of a user, or of all users of a client-id, is
    found by the names of a client, too.
    """
    fields: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
    filters = [
        (_peer_of if name == "peer" else attrgetter(name), wanted)
        for name, wanted in query.filters.items()
        if name in fields
    ]
    counters = row is ThrottledRow and {"user", "client_id"} <= query.filters.keys()
    texts = [attrgetter(name) for name in SEARCHED if name in fields]

    def matches(each: Any) -> bool:
        for value_of, wanted in filters:
            value = value_of(each)
            if value != wanted and not (value is None and (counters or wanted == "")):
                return False
        return not query.q or any(query.q in str(text(each) or "").casefold() for text in texts)

    return matches


def _peer_of(row: Any) -> str | None:
    return None if row.peer is None else without_brackets(row.peer)


def cut(rows: Iterable[Any], query: Query, value: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the rows up to the end of the page, by what ``value`` returns of each; None comes last. For a thread."""
    if not query.sort:
        return list(rows)[: query.most]
    value_of = value or attrgetter(query.sort)

    def key(row: Any) -> tuple[bool, Any]:
        found = value_of(row)
        return (found is None) is not query.is_descending, found

    return (nlargest if query.is_descending else nsmallest)(query.most, rows, key)


def first(rows: Iterable[Any], query: Query, row: type) -> Page:
    """Return the first of the rows that match, and how many do. For a thread."""
    matches = matching(query, row)
    found = [each for each in rows if matches(each)]
    return Page(len(found), cut(found, query))
