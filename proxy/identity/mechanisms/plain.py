"""SASL PLAIN (RFC 4616): one token, ``[authzid] NUL user NUL password``."""

from proxy.identity.mechanisms.mechanism import Claim


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


class Plain:
    """The ``Mechanism`` PLAIN; it keeps only the user."""

    __slots__ = ("_has_begun", "claim")

    def __init__(self) -> None:
        self.claim: Claim | None = None
        self._has_begun = False

    def from_client(self, token: bytes) -> None:
        """Read the first token; the broker never evaluates a second one."""
        if self._has_begun:
            return
        self._has_begun = True
        user = claimed_user(token)
        if user is not None:
            self.claim = Claim(user)

    def from_broker(self, token: bytes) -> bool:
        """Return True: a broker refuses with an error, or closes."""
        del token
        return True
