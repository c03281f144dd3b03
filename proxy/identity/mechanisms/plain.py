"""SASL PLAIN (RFC 4616): one token, ``[authzid] NUL user NUL password``."""

from proxy.identity.mechanisms.mechanism import Claim


def claim_in(token: bytes) -> Claim | None:
    """Return the user that a token names, None if a broker would refuse it (Kafka's ``PlainSaslServer``).

    It requires exactly three parts, a non-empty user and password, and no authorization id but the user's own.
    """
    parts = token.split(b"\0", 3)
    if len(parts) != 3:
        return None
    authzid, user, password = parts
    if not user or not password or authzid not in (b"", user):
        return None
    try:
        return Claim(user.decode())
    except UnicodeDecodeError:  # Java would replace it by U+FFFD and merge several users
        return None
