"""Reports clients that cannot be told apart, if a quota of the default user applies to them all together."""

from collections.abc import Iterable

from config.settings import Listener
from quotas.entities import Default
from quotas.policy import Policy


def sharing_default(listeners: Iterable[Listener], policy: Policy) -> list[str]:
    """Return a line for each listener at which clients share a counter under a quota of the default user."""
    if not any(entity.user is Default.DEFAULT and not entity.cap for entity in policy.limits):
        return []
    return [
        f"listener {listener.name}: the quota of the default user limits {_whom(listener)}"
        for listener in listeners
        if listener.authentication == "sasl"
    ]


def _whom(listener: Listener) -> str:
    custom = "of a mechanism that Sluice cannot follow, all clients together"
    if listener.sasl.kerberos is not None:
        return custom
    return f"all clients of GSSAPI together (sasl.kerberos tells them apart), and {custom}"
