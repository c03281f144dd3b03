"""The client's side of SASL mechanisms: kafka-python's, which know no socket.

To import this takes a tenth of a second: where there is a login to be made, and not before.
"""

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from proxy.brokers.login import Exchange


def password_exchange(mechanism: str, username: str, password: str) -> Exchange:
    """Return PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 for one login."""
    if mechanism != "PLAIN":  # kafka-python leaves the escapes of RFC 5802 to its caller
        username = username.replace("=", "=3D").replace(",", "=2C")
    exchange: Exchange = get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism, sasl_plain_username=username, sasl_plain_password=password
    )
    return exchange


def bearer_exchange(token: str) -> Exchange:
    """Return OAUTHBEARER with a token that is there already."""
    exchange: Exchange = get_sasl_mechanism("OAUTHBEARER")(sasl_oauth_token_provider=_GivenToken(token))
    return exchange


class _GivenToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        """Return what is sent as the bearer's token."""
        return self._token
