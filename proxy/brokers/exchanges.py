"""The client side of SASL mechanisms, from kafka-python, without sockets.

Importing it takes a tenth of a second, so it is imported only for a login.
"""

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from proxy.brokers.login import SaslExchange


def password_exchange(mechanism: str, username: str, password: str) -> SaslExchange:
    """Return a PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 exchange for one login."""
    if mechanism != "PLAIN":  # kafka-python leaves RFC 5802's escaping to its caller
        username = username.replace("=", "=3D").replace(",", "=2C")
    exchange: SaslExchange = get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism, sasl_plain_username=username, sasl_plain_password=password
    )
    return exchange


def bearer_exchange(token: str) -> SaslExchange:
    """Return an OAUTHBEARER exchange with an existing token."""
    exchange: SaslExchange = get_sasl_mechanism("OAUTHBEARER")(sasl_oauth_token_provider=_StaticToken(token))
    return exchange


class _StaticToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        """Return the bearer token to send."""
        return self._token
