"""Finds quotas that brokers enforce in addition to Sluice, and their effect (docs/quotas.md, "Which side enforces
what").
"""

from collections.abc import Mapping

from config.problems import Problem
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.base import Loaded

RATE = QuotaKind.CONNECTION_CREATION_RATE
OFF = RATE.row.written.value
"""The connection rate that means no limit."""
FIX = "docs/quotas.md says which side enforces what, and how to leave it to one"


def of_same_quotas(loaded: Loaded) -> list[Problem]:
    """Return one warning for quotas that brokers and Sluice read from the same place and both enforce."""
    if not loaded.policy.limits:
        return []
    message = "the brokers enforce these quotas as well: a client gets the longer of the two throttles"
    return [Problem(loaded.source, 0, 0, "quotas", message, FIX), *of_address(loaded.policy, loaded.source)]


def of_address(brokers: Policy, source: str) -> list[Problem]:
    """Return a warning if brokers would limit the proxy's address as one client."""
    rates = brokers.book(RATE).limits
    if rates.get((Default.DEFAULT, None), OFF) >= OFF:
        return []
    message = f"{RATE} of ip=<default> applies to the proxy's address at the brokers, for all its clients together"
    fix = f"set {OFF} at the brokers for the addresses of the proxy"
    return [Problem(source, 0, 0, Entity(ip=Default.DEFAULT).describe(), message, fix)]


def of_one_user(brokers: Policy) -> list[Problem]:
    """Return a warning for quotas that brokers enforce on all clients as one user, that of the proxy's certificate."""
    kinds = [
        kind.value
        for kind in QuotaKind
        if kind is not RATE and any(user is Default.DEFAULT for user, _ in brokers.book(kind).limits)
    ]
    if not kinds:
        return []
    message = (
        f"to the brokers all clients are the user of the proxy's certificate: {', '.join(kinds)} of user=<default> "
        "applies to all of them together"
    )
    fix = "give the user of the certificate quotas that are never reached"
    return [Problem("brokers", 0, 0, "user=<default>", message, fix)]


def of_both(ours: Mapping[Entity, Mapping[QuotaKind, float]], brokers: Policy) -> list[Problem]:
    """Return one warning for quotas that both sides have, wherever each reads them."""
    found = [
        (entity, kind) for entity, limits in brokers.limits.items() for kind in limits if kind in ours.get(entity, {})
    ]
    if not found:
        return []
    entity, kind = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    message = f"{kind} is enforced by the brokers and by Sluice{more}: a client gets the longer of the two throttles"
    return [Problem("brokers", 0, 0, entity.describe(), message, FIX)]
