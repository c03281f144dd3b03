"""Who clients are, by their listener's settings: what reads their SASL and their certificates, and counts logins."""

from collections.abc import Callable

import structlog

from config.settings import Listener as ListenerSettings
from proxy.edge.routes import ClusterView
from proxy.edge.stats import Stats
from proxy.identity.certificates.distinguished_name import rfc2253
from proxy.identity.certificates.ssl_mapping import parse_rules
from proxy.identity.failed_logins import FailedLogins
from proxy.identity.kerberos.gssapi import GssapiAcceptor, Unread, acceptor
from proxy.identity.mechanisms.known import Mechanisms
from proxy.identity.sasl import SaslRules
from proxy.runtime.clock import now_ms

log = structlog.get_logger("sluice")


class Logins:
    """The logins of all listeners."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._failed = FailedLogins()
        self._acceptors: dict[str, GssapiAcceptor] = {}

    def rules_of(self, listener: ListenerSettings, view: ClusterView) -> SaslRules:
        """Return how SASL is read there. Raises InvalidValue as ``gssapi.acceptor``."""

        def ended(mechanism: str, succeeded: bool, peer: str, claimed: str | None) -> None:
            outcome = "succeeded" if succeeded else "failed"
            self._stats.authentications[listener.name, mechanism, outcome] += 1
            log.debug("authentication", listener=listener.name, mechanism=mechanism, outcome=outcome, peer=peer)
            if not succeeded:
                self._failed.note(listener.name, mechanism, claimed, peer, now_ms())

        kerberos = listener.sasl.kerberos
        if kerberos is not None:
            self._acceptors[listener.name] = acceptor(kerberos)
        mechanisms = Mechanisms(listener.sasl.sub_claim, self._acceptors.get(listener.name))
        return SaslRules(mechanisms.begin, view.owner_of, ended)

    def unread(self) -> dict[tuple[str, str], int]:
        """Return the tokens that no keytab opened, by listener and cause."""
        return {(name, cause): each.unread[cause] for name, each in self._acceptors.items() for cause in Unread}

    def flush(self, now_ms: int) -> None:
        """Log what is due of logins that failed."""
        self._failed.flush(now_ms)


def certificate_names(listener: ListenerSettings) -> Callable[[bytes], str]:
    """Return what makes the user of a client certificate's DER; it raises ValueError where no rule does."""
    rules = parse_rules(listener.tls.principal_mapping_rules if listener.tls is not None else "")
    return lambda der: rules.user(rfc2253(der))
