"""Each instance looks whether the next one is alive: one whose process has ended is replaced at once.

It asks for the owners of the state API, which are told without asking workers. A refused connection, or another boot,
is a process that has ended; a silence is none, nor is an address that has never answered: it may be a firewall's.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ValidationError

from proxy.owners.member import GroupMember
from proxy.owners.messages import MapMessage, Text
from proxy.runtime.http_get import Get, get_unsigned
from proxy.runtime.tasks import every

EVERY_S: Final = 0.4
_ANSWER_S: Final = 1.0
_REFUSALS: Final = 2
_MOST_BYTES: Final = 256 * 1024


class Said(BaseModel):
    """The instance that answers (``proxy.state.rows.OwnersRow``)."""

    instance: Text
    boot: int


@dataclass(eq=False, repr=False)
class Probe:
    """Asks the instance behind this one, in the order of names, all around."""

    _member: GroupMember
    _get: Get = get_unsigned
    _whom: tuple[str, int] | None = None
    """Instance and boot."""
    _has_answered: bool = False
    _refusals: int = 0
    _job: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._job = every(EVERY_S, self._look, "look whether the next instance is alive")

    def stop(self) -> None:
        if self._job is not None:
            self._job.cancel()

    async def _look(self) -> None:
        known = self._member.map
        others = [] if known is None else sorted(name for name in _probed(known) if name != self._member.instance)
        if known is None or not others:
            return
        name = next((each for each in others if each > self._member.instance), others[0])
        next_one = known.members[name]
        if self._whom != (name, next_one.boot):
            self._whom, self._has_answered, self._refusals = (name, next_one.boot), False, 0
        assert next_one.probe is not None  # noqa: S101  for mypy: see above
        if await self._has_ended(*next_one.probe, *self._whom):
            self._refusals = 0
            await self._member.remove(*self._whom)

    async def _has_ended(self, host: str, port: int, name: str, boot: int) -> bool:
        try:
            answer = await self._get(name, (host, port), "/api/v1/owners", _ANSWER_S, _MOST_BYTES)
            said = Said.model_validate_json(answer.body, strict=True)
        except ConnectionRefusedError:
            self._refusals += 1
            return self._has_answered and self._refusals >= _REFUSALS
        except (OSError, ValidationError):
            self._refusals = 0
            return False
        self._refusals = 0
        if said.instance != name:
            return False
        self._has_answered = self._has_answered or said.boot == boot
        return said.boot > boot


def _probed(known: MapMessage) -> Iterator[str]:
    """Return the instances that are missed if they end: not those that stop, which have given their brokers away."""
    for name, each in known.members.items():
        if each.probe is not None and (each.weight > 0 or name in known.owners.values()):
            yield name
