"""Whether brokers enforce quotas that Sluice enforces too, and on whom (docs/quotas.md, "Which side enforces what")."""

from collections.abc import Mapping

from config.problems import Problem
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.base import Loaded

RATE = QuotaKind.CONNECTION_CREATION_RATE
OFF = RATE.row.written.value
"""A connection rate that is none."""
FIX = "docs/quotas.md says which side enforces what, and how to leave it to one"


def of_same_quotas(loaded: Loaded) -> list[Problem]:
    """Return one warning for quotas that brokers and Sluice read at the same place, and both enforce."""
    if not loaded.policy.limits:
        return []
    message = "the brokers enforce the quotas that they hold as well: a client is throttled by whichever side says more"
    return [Problem(loaded.source, 0, 0, "quotas", message, FIX), *of_address(loaded.policy, loaded.source)]


def of_address(brokers: Policy, source: str) -> list[Problem]:
    """Return a warning where brokers would take the proxy's address for one client."""
    rates = brokers.table(RATE)
    if rates.get((Default.DEFAULT, None), OFF) >= OFF:
        return []
    message = f"{RATE} of ip=<default> holds for the proxy's address at the brokers, for all its clients together"
    fix = f"set {OFF} at the brokers for the addresses of the proxy"
    return [Problem(source, 0, 0, Entity(ip=Default.DEFAULT).describe(), message, fix)]


def of_one_user(brokers: Policy, source: str) -> list[Problem]:
    """Return a warning for quotas that brokers enforce on all clients together, where all are one user to them: behind
    a certificate of the proxy's own.
    """
    kinds = [
        kind.value
        for kind in QuotaKind
        if kind is not RATE and any(user is Default.DEFAULT for user, _ in brokers.table(kind))
    ]
    if not kinds:
        return []
    message = (
        f"to the brokers all clients are the user of the proxy's certificate: {', '.join(kinds)} of user=<default> "
        "holds for all of them together"
    )
    return [
        Problem(source, 0, 0, "user=<default>", message, "give the user of the certificate quotas that nobody meets")
    ]


def of_both(ours: Mapping[Entity, Mapping[QuotaKind, float]], brokers: Policy, source: str) -> list[Problem]:
    """Return one warning for quotas that both sides hold, wherever each has them from."""
    found = [
        (entity, kind) for entity, limits in brokers.limits.items() for kind in limits if kind in ours.get(entity, {})
    ]
    if not found:
        return []
    entity, kind = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    message = f"{kind} is held by the brokers and by Sluice{more}: a client is throttled by whichever side says more"
    return [Problem(source, 0, 0, entity.describe(), message, FIX)]
