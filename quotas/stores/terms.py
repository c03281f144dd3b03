"""The terms of a quota in a quota file: mode, scope, proposed limits, burst and longest delay."""

from collections.abc import Callable, Container, Sequence
from typing import Final, TypeVar

from config.nodes import Mapping, Node, Scalar
from config.problems import InvalidValue, InvalidValues, Steps, explained, suggestion
from config.units import parse_duration_ms, parse_flag
from quotas.kinds import QuotaKind
from quotas.policy import Terms

KEYS: Final = ("mode", "scope", "proposed", "burst", "max_delay", "shared")
_MODES: Final = ("enforce", "shadow")
_SCOPES: Final = ("broker", "cluster")
_LEAST_BURST_MS: Final = 100
_MOST_BURST_MS: Final = 3_600_000

_T = TypeVar("_T")

ReadLimit = Callable[[Steps, str, Node], tuple[QuotaKind, float]]


def read(
    steps: Steps, quota: Mapping, limits: Container[QuotaKind], wrong: InvalidValues, read_limit: ReadLimit
) -> Terms:
    """Return the terms of a quota; ``read_limit(steps, key, value)`` reads a proposed limit."""

    def given(key: str, parse: Callable[[Node], _T], otherwise: _T) -> _T:
        with wrong.at(*steps, key):
            if key in quota:
                return parse(quota[key])
        return otherwise

    shadow = given("mode", lambda written: _one_of(written, _MODES) == "shadow", otherwise=False)
    of_cluster = given("scope", lambda written: _one_of(written, _SCOPES) == "cluster", otherwise=False)
    burst_ms = given("burst", _burst_ms, None)
    max_delay_ms = given("max_delay", _duration_ms, None)
    shared = given("shared", lambda written: _shared(written, quota.get("entity")), otherwise=True)
    proposed: dict[QuotaKind, float] = {}
    if "proposed" in quota:
        at = (*steps, "proposed")
        with wrong.at(*at):
            if shadow:
                raise InvalidValue("cannot be combined with mode: shadow", "leave out mode, or proposed")
            for key, value in _proposals(quota["proposed"]).items():
                with wrong.at(*at, key):
                    kind, limit = read_limit((*at, key), key, value)
                    if kind not in limits:
                        fix = f"add {kind} to this quota, or use mode: shadow in a quota of its own"
                        raise InvalidValue("is proposed, but the quota has no such limit in force", fix)
                    proposed[kind] = limit
    return Terms(shadow, proposed, burst_ms, max_delay_ms, shared, of_cluster)


def _shared(written: Node, entity: Node) -> bool:
    client_id = entity.get("client-id") if isinstance(entity, Mapping) else None
    if not (isinstance(client_id, Mapping) and "prefix" in client_id):
        raise InvalidValue("is for a prefix of client-ids", "leave it out: docs/quotas.md says who shares a counter")
    if not isinstance(written, Scalar):
        raise InvalidValue("must be true or false")
    with explained(written):
        return parse_flag(written)


def _one_of(written: Node, known: Sequence[str]) -> str:
    if not isinstance(written, Scalar) or written not in known:
        fix = "remove the quota, or make it shadow" if written == "off" else suggestion(str(written), known)
        raise InvalidValue(f"{written!r} is not known", fix)
    return written


def _proposals(written: Node) -> Mapping:
    if not isinstance(written, Mapping) or not written:
        raise InvalidValue("must be limits", "write them like {producer_byte_rate: 1MiB}")
    return written


def _burst_ms(written: Node) -> int:
    burst_ms = _duration_ms(written)
    if not _LEAST_BURST_MS <= burst_ms <= _MOST_BURST_MS:
        raise InvalidValue(f"{written} is too {'short' if burst_ms < _LEAST_BURST_MS else 'long'}", "100ms to 1h")
    return burst_ms


def _duration_ms(written: Node) -> int:
    if not isinstance(written, Scalar):
        raise InvalidValue("must be a duration", "write it like 5s")
    with explained(written):
        duration_ms = parse_duration_ms(written)
    if not duration_ms:
        raise InvalidValue("is too small", "it must be more than 0")
    return duration_ms
