"""SASL PLAIN (RFC 4616): one token, ``[authzid] NUL user NUL password``."""

from proxy.identity.mechanisms.mechanism import Claim, FirstToken


def claimed_user(token: bytes) -> str | None:
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
        return user.decode()
    except UnicodeDecodeError:  # Java would replace it by U+FFFD and merge several users
        return None


class Plain(FirstToken):
    """The ``Mechanism`` PLAIN; it keeps only the user. A broker refuses with an error, or closes."""

    __slots__ = ()

    def _claim_in(self, token: bytes) -> Claim | None:
        user = claimed_user(token)
        return None if user is None else Claim(user)
