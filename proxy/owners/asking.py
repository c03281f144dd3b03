"""Questions to other instances of the group, at their admin ports.

They are signed, as reading may need a token there: for the receiver, by its member id, and for what is asked. Whoever
sees one may ask the same again until the receiver joins anew; where strangers could see it, ports need TLS.
"""

import hmac
import ssl
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from proxy.owners.member import GroupMember
from proxy.owners.messages import Kind, Label
from proxy.runtime.http_get import Answer, http_get

_SCHEME: Final = "Sluice-Instance"


class Asking:
    """Asks other instances, as ``member`` knows them."""

    def __init__(self, member: GroupMember, context: Callable[[], ssl.SSLContext | None] = lambda: None) -> None:
        self._member = member
        self._context = context

    async def get(self, name: str, at: tuple[str, int], path: str, within_s: float, most_bytes: int) -> Answer:
        """Ask an instance. Raises OSError."""
        known = self._member.map
        signature = "" if known is None else self._signature(name, known.ids.get(name, ""), path)
        authorization = f"{_SCHEME} {signature}"
        return await http_get(
            at, path, within_s=within_s, most_bytes=most_bytes, authorization=authorization, context=self._context()
        )

    async def post(self, at: tuple[str, int], path: str, body: bytes, within_s: float, most_bytes: int) -> Answer:
        """Send a message that is signed by itself. Raises OSError."""
        return await http_get(at, path, post=body, within_s=within_s, most_bytes=most_bytes, context=self._context())

    def is_signed(self, authorization: str, path: str) -> bool:
        """Whether another instance has asked this one for ``path``."""
        scheme, _, given = authorization.partition(" ")
        if scheme != _SCHEME or not self._member.member_id:
            return False
        wanted = self._signature(self._member.status.instance, self._member.member_id, path)
        return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())

    def _signature(self, name: str, member_id: str, path: str) -> str:
        label = Label(Kind.QUESTION, name, member_id)
        return self._member.signing.of(label, sha256(path.encode(errors="replace")).digest()).hex()
