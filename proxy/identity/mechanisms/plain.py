"""SASL PLAIN (RFC 4616): one token, ``[authzid] NUL user NUL password``."""

from proxy.identity.mechanisms.mechanism import Claim


def claimed_user(token: bytes) -> str | None:
    """Return the user that a token names, None if a broker could not take it (Kafka's ``PlainSaslServer``).

    It takes exactly three parts, a user and a password that are not empty, and no authorization id but the user's own.
    """
    parts = token.split(b"\0", 3)
    if len(parts) != 3:
        return None
    authzid, user, password = parts
    if not user or not password or authzid not in (b"", user):
        return None
    try:
        return user.decode()
    except UnicodeDecodeError:  # Java would put U+FFFD for it, and give several users one name
        return None


class Plain:
    """A ``Mechanism``. Of the token it keeps the user alone."""

    __slots__ = ("_has_begun", "claim")

    def __init__(self) -> None:
        self.claim: Claim | None = None
        self._has_begun = False

    def from_client(self, token: bytes) -> None:
        """Take the first token; the broker judges no second one."""
        if self._has_begun:
            return
        self._has_begun = True
        user = claimed_user(token)
        if user is not None:
            self.claim = Claim(user)

    def from_broker(self, token: bytes) -> bool:
        """Any answer without an error is success: a broker that refuses answers with one, or closes."""
        del token
        return True
