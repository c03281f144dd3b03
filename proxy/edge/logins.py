"""Client authentication by the settings of each listener: SASL observers, counts of logins."""

from functools import partial

import structlog

from config.claims import parse_claim
from config.listener import ListenerSasl
from config.settings import Listener as ListenerSettings
from proxy.edge.routes import ClusterView
from proxy.edge.stats import Stats
from proxy.identity.credentials import Credentials
from proxy.identity.failed_logins import FailedLogins
from proxy.identity.kerberos.gssapi import GssapiAcceptor, UnreadableCause, acceptor
from proxy.identity.mechanisms.oauthbearer import Names
from proxy.identity.mechanisms.registry import Mechanisms
from proxy.identity.principal import of_mechanism
from proxy.identity.sasl import SaslRules
from proxy.runtime.clock import now_ms

log = structlog.get_logger("sluice")


class Logins:
    """SASL rules and login counters of all listeners."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._failed = FailedLogins()
        self._acceptors: dict[str, GssapiAcceptor] = {}

    def rules_of(self, listener: ListenerSettings, view: ClusterView) -> SaslRules:
        """Return the SASL rules of a listener. Raises InvalidValue as ``gssapi.acceptor``."""

        def ended(mechanism: str, succeeded: bool, peer: str, claimed: str | None) -> None:
            outcome = "succeeded" if succeeded else "failed"
            self._stats.authentications[listener.name, mechanism, outcome] += 1
            log.debug("authentication", listener=listener.name, mechanism=mechanism, outcome=outcome, peer=peer)
            if not succeeded:
                self._failed.log(listener.name, mechanism, claimed, peer, now_ms())

        kerberos = listener.sasl.kerberos
        if kerberos is not None:
            self._acceptors[listener.name] = acceptor(kerberos)
        mechanisms = Mechanisms(_names(listener.sasl), self._acceptors.get(listener.name))
        credentials = Credentials(listener.sasl.credentials_per_address, now_ms, partial(self._shared, listener.name))
        return SaslRules(mechanisms.begin, view.owner_of, ended, credentials)

    def _shared(self, listener: str, mechanism: str, has_credential: bool) -> None:
        """Count a client that shares its counter with all others of its mechanism; log it once."""
        why = "no_room" if has_credential else "no_credential"
        if not self._stats.shared_logins[listener, mechanism, why]:
            log.warning(
                "clients share one counter: a quota of the default user limits them all together",
                listener=listener,
                mechanism=mechanism,
                user=of_mechanism(mechanism),
                why="more credentials from one address than sasl.credentials_per_address, or too many in all"
                if has_credential
                else "the mechanism shows neither user nor credential",
            )
        self._stats.shared_logins[listener, mechanism, why] += 1

    def unread(self) -> dict[tuple[str, str], int]:
        """Return the number of tokens that no keytab could decrypt, by listener and cause."""
        return {
            (name, cause): each.unread[cause] for name, each in self._acceptors.items() for cause in UnreadableCause
        }

    def flush(self, now_ms: int) -> None:
        self._failed.flush(now_ms)


def _names(sasl: ListenerSasl) -> Names:
    """Return the claims that name the user of a bearer token."""
    oauth = sasl.oauth
    if oauth is None:
        return Names((sasl.sub_claim,))
    fallback = parse_claim(oauth.fallback_claim) if oauth.fallback_claim is not None else ()
    return Names(parse_claim(oauth.user_claim), oauth.user_prefix, fallback, oauth.fallback_prefix)
