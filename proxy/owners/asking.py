"""Questions and changes between instances of the group, at their admin ports.

Questions are signed, as reading may need a token there: for the receiver, by its member id, and for what is asked.
Whoever sees one may ask the same again until the receiver joins anew; where strangers could see it, ports need TLS.

A change that an operator asks one instance for is sent to each other one, signed for that receiver: for its member id,
which it has only once, and with a turn that grows. So a message that somebody has seen is taken by no other instance,
and not again.
"""

import asyncio
import hmac
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from config.units import Address
from proxy.brokers.failures import describe
from proxy.owners.member import GroupMember
from proxy.owners.messages import ChangeMessage, Kind, Label, MessageError
from proxy.runtime.http_get import Answer, http_get

PATH: Final = "/owners/change"
"""Where changes are told."""
_SCHEME: Final = "Sluice-Instance"
_ANSWER_S: Final = 2.0
_MOST_BYTES: Final = 64 * 1024
_MOST_TOLD: Final = 200


@dataclass(eq=False, repr=False)
class Asking:
    """Asks other instances, as ``_member`` knows them, tells them changes and hears theirs."""

    _member: GroupMember
    _context: Callable[[], ssl.SSLContext | None] = lambda: None
    """Returns the TLS context for the admin ports of other instances; None: the system's authorities."""
    _turn: int = 0
    _telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Turns come in their order."""
    _heard: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By instance: its boot, and its turn that was heard last."""

    async def get(self, name: str, at: tuple[str, int], path: str, within_s: float, most_bytes: int) -> Answer:
        """Ask an instance. Raises OSError."""
        known = self._member.map
        signature = "" if known is None else self._signature(name, known.ids.get(name, ""), path)
        authorization = f"{_SCHEME} {signature}"
        return await http_get(
            at, path, within_s=within_s, most_bytes=most_bytes, authorization=authorization, context=self._context()
        )

    def is_signed(self, authorization: str, path: str) -> bool:
        """Whether another instance has asked this one for ``path``."""
        scheme, _, given = authorization.partition(" ")
        if scheme != _SCHEME or not self._member.member_id:
            return False
        wanted = self._signature(self._member.instance, self._member.member_id, path)
        return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())

    async def tell(self, what: str, form: Mapping[str, str], who: str, source: str) -> dict[str, str | None]:
        """Have all other instances make a change; return each with why it did not, None if it did."""
        async with self._telling:
            self._turn += 1
            me = self._member
            message = ChangeMessage(
                instance=me.instance, boot=me.boot, turn=self._turn, what=what, form=form, who=who, source=source
            )
            others = {name: at for name, (_, at) in sorted(me.peers.items())}
            errors = await asyncio.gather(*(self._tell(name, at, message) for name, at in others.items()))
            return dict(zip(others, errors, strict=True))

    async def _tell(self, name: str, at: tuple[str, int] | None, message: ChangeMessage) -> str | None:
        known = self._member.map
        if at is None or known is None:
            return "its admin port is not known, or not reachable from here (admin.bind)"
        signed = message.packed.signed(self._member.signing, Label(Kind.CHANGE, name, known.ids[name]))
        try:
            answer = await http_get(
                at, PATH, post=signed, within_s=_ANSWER_S, most_bytes=_MOST_BYTES, context=self._context()
            )
        except TimeoutError as error:
            return str(error)
        except OSError as error:
            return f"{Address(*at)}: {describe(error)}"
        if answer.status == 200:
            return None
        said = answer.body[:_MOST_TOLD].decode(errors="replace").strip()
        return f"answers with status {answer.status}: {said}"

    def hear(self, data: bytes) -> ChangeMessage:
        """Return the change that another instance tells. Raises MessageError."""
        label = Label(Kind.CHANGE, self._member.instance, self._member.member_id)
        told = ChangeMessage.unpack(data, self._member.signing, label)
        boot, _ = self._member.peers.get(told.instance, (None, None))
        if told.boot != boot:
            raise MessageError(f"{told.instance} is not the member of this group that it was then")
        if (told.boot, told.turn) <= self._heard.get(told.instance, (0, 0)):
            raise MessageError("heard before")
        self._heard[told.instance] = told.boot, told.turn
        return told

    def _signature(self, name: str, member_id: str, path: str) -> str:
        label = Label(Kind.QUESTION, name, member_id)
        return self._member.signing.of(label, sha256(path.encode(errors="replace")).digest()).hex()
