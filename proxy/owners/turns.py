"""Freshness of what members say of themselves: whoever may read the group has all messages, and can send them again.

A message is signed for the member id of its sender, which the coordinator gives to nobody else, and never again. Under
the same id, it has to be of a later turn than all before: an instance that has ended would otherwise keep its brokers.
"""

from collections.abc import Mapping
from typing import Final

import structlog

from proxy.owners.messages import Kind, Label, MapMessage, MemberMessage, MessageError, Signing

log = structlog.get_logger("sluice.owners")

_MOST_KNOWN: Final = 1000


def member_label(member_id: str) -> Label:
    """Return the purpose of a member's message about itself."""
    return Label(Kind.MEMBER, "", member_id)


class Turns:
    """The last turn of each member id, by the maps that were put in force here."""

    def __init__(self, signing: Signing) -> None:
        self._signing = signing
        self._last: dict[str, int] = {}

    def read(self, members: Mapping[str, bytes]) -> tuple[dict[str, MemberMessage], list[str]]:
        """Return the messages of instances by member id, and the member ids of strangers."""
        said: dict[str, MemberMessage] = {}
        strangers = []
        for member_id, message in members.items():
            try:
                found = MemberMessage.unpack(message, self._signing, member_label(member_id))
                self._check(member_id, found.turn)
            except MessageError as error:
                log.error("a stranger in the group of instances is removed", member=member_id, error=str(error))
                strangers.append(member_id)
            else:
                said[member_id] = found
        return said, strangers

    def take(self, taken: MapMessage) -> None:
        """Remember the turns of a map that is put in force. Raises MessageError if it has an old one."""
        turns = {member_id: taken.members[name].turn for name, member_id in taken.ids.items() if name in taken.members}
        for member_id, turn in turns.items():
            self._check(member_id, turn)
        self._last = {**{each: turn for each, turn in self._last.items() if each not in turns}, **turns}
        for member_id in list(self._last)[:-_MOST_KNOWN]:
            del self._last[member_id]

    def _check(self, member_id: str, turn: int) -> None:
        if turn <= self._last.get(member_id, -1):
            raise MessageError("a member's message of before: somebody has sent it again")
