"""The terms of a quota in a quota file: mode, scope, proposed limits, burst and longest delay."""

from collections.abc import Callable
from typing import Final

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

ReadLimit = Callable[[Steps, str, Node], tuple[QuotaKind, float]]


def read(
    steps: Steps,
    quota: Mapping,
    limits: dict[QuotaKind, float],
    wrong: InvalidValues,
    read_limit: ReadLimit,
    *,
    of_prefix: bool,
) -> Terms:
    """Return the terms of a quota; ``read_limit(steps, key, value)`` reads a proposed limit."""
    shadow, of_cluster, burst_ms, max_delay_ms, shared = False, False, None, None, True
    proposed: dict[QuotaKind, float] = {}
    with wrong.at(*steps, "mode"):
        shadow = _mode(quota["mode"]) == "shadow" if "mode" in quota else False
    with wrong.at(*steps, "scope"):
        of_cluster = _scope(quota["scope"]) == "cluster" if "scope" in quota else False
    with wrong.at(*steps, "burst"):
        burst_ms = _burst_ms(quota["burst"]) if "burst" in quota else None
    with wrong.at(*steps, "max_delay"):
        max_delay_ms = _duration_ms(quota["max_delay"]) if "max_delay" in quota else None
    with wrong.at(*steps, "shared"):
        shared = _shared(quota["shared"], of_prefix=of_prefix) if "shared" in quota else True
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


def _shared(written: Node, *, of_prefix: bool) -> bool:
    if not of_prefix:
        raise InvalidValue("is for a prefix of client-ids", "leave it out: docs/quotas.md says who shares a counter")
    if not isinstance(written, Scalar):
        raise InvalidValue("must be true or false")
    with explained(written):
        return parse_flag(written)


def _mode(written: Node) -> str:
    if not isinstance(written, Scalar) or written not in _MODES:
        fix = "remove the quota, or make it shadow" if written == "off" else suggestion(str(written), _MODES)
        raise InvalidValue(f"{written!r} is not known", fix)
    return written


def _scope(written: Node) -> str:
    if not isinstance(written, Scalar) or written not in _SCOPES:
        raise InvalidValue(f"{written!r} is not known", suggestion(str(written), _SCOPES))
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
