"""Changes that an operator asks one instance for, and all instances of the group make.

The instance that is asked sends each other one the same, signed for that receiver: for its member id, which it has only
once, and with a turn that grows. So a message that somebody has seen is taken by no other instance, and not again.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from config.units import Address
from proxy.brokers.failures import describe
from proxy.owners.asking import Asking
from proxy.owners.member import GroupMember
from proxy.owners.messages import ChangeMessage, Kind, Label, MessageError

PATH: Final = "/owners/change"
_ANSWER_S: Final = 2.0
_MOST_BYTES: Final = 64 * 1024
_MOST_TOLD: Final = 200

Form = Mapping[str, str]


class GroupChanges:
    """What ``member`` tells the others, and hears of them."""

    def __init__(self, member: GroupMember, asking: Asking) -> None:
        self._member = member
        self._asking = asking
        self._turn = 0
        self._telling = asyncio.Lock()
        """Turns come in their order."""
        self._heard: dict[str, tuple[int, int]] = {}
        """By instance: its boot, and its turn that was heard last."""

    async def tell(self, what: str, form: Form, who: str, source: str) -> dict[str, str | None]:
        """Have all other instances make a change; return each with why it did not, None if it did."""
        async with self._telling:
            self._turn += 1
            status = self._member.status
            message = ChangeMessage(
                instance=status.instance,
                boot=status.boot,
                turn=self._turn,
                what=what,
                form=form,
                who=who,
                source=source,
            )
            others = {name: at for name, (_, at) in sorted(self._member.peers.items())}
            errors = await asyncio.gather(*(self._tell(name, at, message) for name, at in others.items()))
            return dict(zip(others, errors, strict=True))

    async def _tell(self, name: str, at: tuple[str, int] | None, message: ChangeMessage) -> str | None:
        known = self._member.map
        if at is None or known is None:
            return "its admin port is not known, or not reachable from here (admin.bind)"
        signed = message.packed.signed(self._member.signing, Label(Kind.CHANGE, name, known.ids[name]))
        try:
            answer = await self._asking.post(at, PATH, signed, _ANSWER_S, _MOST_BYTES)
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
        status = self._member.status
        label = Label(Kind.CHANGE, status.instance, self._member.member_id)
        told = ChangeMessage.unpack(data, self._member.signing, label)
        boot, _ = self._member.peers.get(told.instance, (None, None))
        if told.boot != boot:
            raise MessageError(f"{told.instance} is not the member of this group that it was then")
        if (told.boot, told.turn) <= self._heard.get(told.instance, (0, 0)):
            raise MessageError("heard before")
        self._heard[told.instance] = told.boot, told.turn
        return told
