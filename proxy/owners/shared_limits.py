"""Limits that all processes count together (``scope: cluster``): which part of each is whose.

Every half second each instance asks the others, at their admin ports, for the demand of their processes, and computes
the shares of its own from all of it (``quotas.shares``). An instance that does not answer counts with what it told last
for some seconds; then one client is taken to wait there for each counter, and until it leaves the map of owners, no
process has more than an equal share. So no share grows because a network fails.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from secrets import token_hex
from typing import Annotated, Final
from urllib.parse import urlencode

import structlog
from pydantic import BaseModel, Field

from proxy.brokers.failures import describe
from proxy.owners.member import GroupMember
from proxy.owners.messages import Kind, Label, MessageError, Number, Packed, Signing, Text, unseal
from proxy.runtime.clock import monotonic_s
from proxy.runtime.http_get import Get, get_unsigned
from proxy.runtime.tasks import every
from quotas.counted import CounterKey
from quotas.kinds import QuotaKind
from quotas.shares import Demand, grown_late, shares

log = structlog.get_logger("sluice.owners")

EVERY_S: Final = 0.5
PATH: Final = "/owners/demand"
_ANSWER_S: Final = 0.4
_STALE_S: Final = 3.0
_MOST_BUSY: Final = 0.2
"""The part of the time that this may take, where clients have made up many names."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_MOST_TEXT_BYTES: Final = _MOST_BYTES - 64 * 1024
"""Bytes of a message before zlib, which adds less than the difference to what it cannot compress."""
_FAST: Final = 1
"""The level of zlib: at level 6, 8 MB of made-up names take longer than an asker waits."""
_NOTHING: Final = Demand()
_UNKNOWN: Final = Demand(0.0, 1)

Demands = Mapping[CounterKey, Demand]
Shares = Mapping[CounterKey, float]

Row = tuple[QuotaKind, str, str, int, int, Number, Annotated[int, Field(ge=0)]]
"""A counter and the demand for it. Names are UTF-8 read as Latin-1: a lone surrogate is no JSON for all parsers."""


class DemandMessage(BaseModel):
    """The demand of the processes of an instance."""

    instance: Text
    boot: int
    processes: Annotated[list[list[Row]], Field(max_length=1024)]


@dataclass(slots=True)
class Peer:
    """Another instance, and what it told last."""

    boot: int
    at: tuple[str, int] | None
    """None: it cannot be asked."""
    error: str | None = None
    """Why it was not heard when it was asked last."""
    processes: list[Demands] | None = None
    heard_s: float = -inf

    @property
    def is_unheard(self) -> bool:
        return monotonic_s() - self.heard_s > _STALE_S

    def nodes(self, usual: int) -> Sequence[Demands | None]:
        """Return the demand of its processes, of which there are ``usual`` if it never told."""
        return [None] * len(self.processes or range(usual)) if self.is_unheard else self.processes or ()


@dataclass(eq=False, repr=False)
class SharedLimits:
    """Keeps the shares of this instance's processes in force between ``start`` and ``stop``."""

    _ask_demands: Callable[[], Awaitable[Sequence[Demands]]]
    """Returns the demand of each process of this instance."""
    _put_shares: Callable[[Sequence[Shares], float], Awaitable[None]]
    """Puts shares in force: one mapping for each process, and the part of counters that are not in it."""
    _is_needed: Callable[[], bool]
    """Whether any limit is of the whole cluster."""
    _member: GroupMember | None = None
    """None without a group."""
    _get: Get = get_unsigned
    """Asks other members."""
    _peers: dict[str, Peer] = field(default_factory=dict)
    _own: Sequence[Demands] = ()
    _took_s: float = 0.0
    _packed: Packed | None = None
    _found: tuple[Sequence[Shares], float] = ((), 0.0)
    """The shares that were found last, and the part of the counters that are not in them."""
    _job: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._job = every(self._pause_s, self._take_turn, "exchange the demand for limits of the cluster")

    def stop(self) -> None:
        if self._job is not None:
            self._job.cancel()

    @property
    def unheard(self) -> int:
        """The number of instances whose demand is needed and was not heard for some time."""
        return sum(peer.is_unheard for peer in self._peers.values()) if self._is_needed() else 0

    def tell(self, asked: Mapping[str, str]) -> bytes | None:
        """Return the demand of this instance, signed for the asker and its turn alone; None without a group.

        It was packed when it was counted: an asker waits for less time than that may take.
        """
        if self._member is None:
            return None
        packed = self._packed or Packed(_text(self._member, []))
        return packed.signed(self._member.signing, _label(asked))

    def _pause_s(self) -> float:
        return max(EVERY_S, self._took_s / _MOST_BUSY)

    async def _take_turn(self) -> None:
        began_s = monotonic_s()
        self._look_up_peers()
        is_needed = self._is_needed()
        if is_needed or not self._own:  # if it is not needed: how many processes there are
            self._own = await self._ask_demands()
            if self._member is not None:
                text = await asyncio.to_thread(_text, self._member, self._own)
                self._packed = await asyncio.to_thread(Packed, text, _MOST_BYTES, _FAST)
        if is_needed and self._member is not None:
            await asyncio.gather(*(self._ask(self._member, name, peer) for name, peer in self._peers.items()))
        nodes = [*self._own, *(node for peer in self._peers.values() for node in peer.nodes(len(self._own)))]
        found = await asyncio.to_thread(divided, nodes, len(self._own)) if is_needed else [{} for _ in self._own]
        otherwise, (before, usual) = 1 / max(len(nodes), 1), self._found
        if len(before) != len(found):
            before, usual = [{}] * len(found), otherwise
        self._found = found, otherwise
        parts = [grown_late(now, otherwise, last, usual) for now, last in zip(found, before, strict=True)]
        await self._put_shares(parts, otherwise)
        self._took_s = monotonic_s() - began_s

    def _look_up_peers(self) -> None:
        found = {} if self._member is None else {name: Peer(*each) for name, each in self._member.peers.items()}
        for name, known in self._peers.items():
            if name in found and (known.boot, known.at) == (found[name].boot, found[name].at):
                found[name] = known
        self._peers = found

    async def _ask(self, member: GroupMember, name: str, peer: Peer) -> None:
        before, peer.error = peer.error, None
        asked = {"instance": member.instance, "member_id": member.member_id, "turn": token_hex(16)}
        try:
            if peer.at is None:
                raise ConnectionError("its admin port is not known, or not reachable from here (admin.bind)")
            path = f"{PATH}?{urlencode(asked)}"
            answer = await self._get(name, peer.at, path, _ANSWER_S, _MOST_BYTES)
            if answer.status != 200:
                raise ConnectionError(f"answers with status {answer.status}")
            said = await asyncio.to_thread(_read, answer.body, member.signing, _label(asked))
            if (said.instance, said.boot) == (name, peer.boot):
                peer.processes = [dict(map(_demand, rows)) for rows in said.processes]
                peer.heard_s = monotonic_s()
            else:
                peer.error = f"it is of {said.instance}, started at {said.boot}"
        except OSError as error:
            peer.error = describe(error)  # it counts with what it told last
        except (MessageError, ValueError) as error:
            peer.error = f"not understood: {str(error)[:200]}"
        if (peer.error is None) is not (before is None):
            log.warning("demand of another instance", instance=name, heard=peer.error is None, error=peer.error)


def divided(nodes: Sequence[Demands | None], number: int) -> list[dict[CounterKey, float]]:
    """Return the shares of the first ``number`` processes; None: nothing is known of a process, and so none has more
    than an equal share.
    """
    parts: list[dict[CounterKey, float]] = [{} for _ in range(number)]
    most = 1 / len(nodes) if None in nodes else 1.0
    for key in dict.fromkeys(key for node in nodes if node is not None for key in node):
        found = shares([_UNKNOWN if node is None else node.get(key, _NOTHING) for node in nodes])
        for own, part in zip(parts, found, strict=False):
            own[key] = min(part, most)
    return parts


def _label(asked: Mapping[str, str]) -> Label:
    return Label(Kind.DEMAND, asked.get("instance", ""), asked.get("member_id", ""), asked.get("turn", ""))


def _text(member: GroupMember, own: Sequence[Demands]) -> bytes:
    """Return a ``DemandMessage``. Clients can make up names: of what does not fit, the greatest demand is told."""
    begin = json.dumps({"instance": member.instance, "boot": member.boot, "processes": []})[:-2]
    parts: list[list[str]] = [[] for _ in own]
    left = _MOST_TEXT_BYTES - len(begin) - 4 * len(own) - 2
    demands = ((number, key, demand) for number, each in enumerate(own) for key, demand in each.items())
    for process, key, demand in sorted(demands, key=lambda each: (not each[2].waiting, -each[2].used)):
        names = (each.encode("utf-8", "surrogatepass").decode("latin-1") for each in (key.user, key.client_id))
        row = json.dumps([key.kind, *names, key.broker, key.several, round(demand.used, 6), demand.waiting])
        left -= len(row) + 2
        if left < 0:
            break
        parts[process].append(row)
    processes = ",".join(f"[{','.join(rows)}]" for rows in parts)
    return f"{begin}{processes}]}}".encode()


def _read(data: bytes, signing: Signing, label: Label) -> DemandMessage:
    """Return what another instance told. Raises MessageError and ValidationError."""
    return DemandMessage.model_validate_json(unseal(data, signing, label, _MOST_BYTES, _MOST_BYTES))


def _demand(row: Row) -> tuple[CounterKey, Demand]:
    kind, user, client_id, broker, several, used, waiting = row
    user, client_id = (each.encode("latin-1").decode("utf-8", "surrogatepass") for each in (user, client_id))
    return CounterKey(kind, user, client_id, broker, several), Demand(used, waiting)
