"""Who clients are, by the settings of their listener."""

import json
from base64 import urlsafe_b64encode

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from config.listener import ListenerSasl
from config.settings import Listener
from config.units import Address
from proxy.edge.logins import Logins
from proxy.edge.routes import ClusterView
from proxy.edge.stats import Stats
from proxy.identity.mechanisms.mechanism import Claim
from proxy.identity.sasl import SaslRules

VIEW = ClusterView.__new__(ClusterView)
"""Nobody asks it for a token's owner here."""


def rules(stats: Stats, **sasl: object) -> SaslRules:
    settings = {"name": "SASL", "bind": Address("127.0.0.1", 1), "sasl": ListenerSasl.model_validate(sasl)}
    listener = Listener.model_construct(None, **settings)  # type: ignore[arg-type]  # what is asked for, and no more
    return Logins(stats).rules_of(listener, VIEW)


def bearer(**claims: str) -> bytes:
    section = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"n,,\x01auth=Bearer e30.{section}.x\x01\x01".encode()


@pytest.mark.parametrize(
    ("sasl", "claim"),
    [
        ({}, Claim("alice")),
        ({"sub_claim": "azp"}, Claim("app")),
        (
            {"oauth": {"user_claim": "email", "fallback_claim": "azp", "fallback_prefix": "service-"}},
            Claim("service-app"),
        ),
        ({"oauth": {"user_prefix": "u-"}}, Claim("u-alice")),
    ],
)
def test_oauthbearer_user_comes_from_configured_claim_and_prefix(sasl: dict[str, object], claim: Claim) -> None:
    mechanism = rules(Stats(), **sasl).begin("OAUTHBEARER")
    assert mechanism is not None
    mechanism.from_client(bearer(sub="alice", azp="app"))
    assert mechanism.claim == claim


@pytest.mark.parametrize(
    ("sasl", "said"),
    [
        ({"oauth": {"fallback_prefix": "x"}}, "has no effect without fallback_claim"),
        ({"sub_claim": "azp", "oauth": {"user_claim": "email"}}, "cannot be combined with sub_claim"),
    ],
)
def test_contradicting_oauth_settings_are_refused(sasl: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ListenerSasl.model_validate(sasl)


def test_logins_sharing_a_counter_are_counted_and_logged_once() -> None:
    stats = Stats()
    with capture_logs() as logs:
        credentials = rules(stats, credentials_per_address=1).credentials
        users = [credentials.user("OAUTHBEARER", credential, "10.0.0.1:5") for credential in ("a", "b", "c")]
        users += [credentials.user("GSSAPI", None, "10.0.0.1:5") for _ in range(2)]
    assert users == ["sluice:OAUTHBEARER:a", *["sluice:OAUTHBEARER"] * 2, *["sluice:GSSAPI"] * 2]
    assert stats.shared_logins == {("SASL", "OAUTHBEARER", "no_room"): 2, ("SASL", "GSSAPI", "no_credential"): 2}
    assert [(line["log_level"], line["user"]) for line in logs] == [
        ("warning", "sluice:OAUTHBEARER"),
        ("warning", "sluice:GSSAPI"),
    ]
