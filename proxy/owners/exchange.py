"""The exchange between processes that count one limit together (``scope: cluster``).

Every half second each instance asks the others, at their admin ports, for the demand of their processes, and computes
the shares of its own from all of it (``quotas.shares``). An instance that does not answer counts with what it told last
for some seconds; then one client is taken to wait there for each counter, and until it leaves the map of owners, no
process has more than an equal share. So no share grows because a network fails.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, Final

import aiohttp
import structlog

from proxy.owners.messages import MessageError, Signing, seal, unseal
from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import every
from quotas.counted import CounterKey
from quotas.kinds import QuotaKind
from quotas.shares import Demand, shares

log = structlog.get_logger("sluice.owners")

EVERY_S: Final = 0.5
PATH: Final = "/owners/demand"
_ANSWER_S: Final = 0.4
_STALE_S: Final = 3.0
_MOST_BUSY: Final = 0.2
"""The part of the time that the exchange may take, where clients have made up many names."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_NOTHING: Final = Demand()
_UNKNOWN: Final = Demand(0.0, 1)

Demands = Mapping[CounterKey, Demand]
Shares = Mapping[CounterKey, float]


AskDemands = Callable[[], Awaitable[Sequence[Demands]]]
"""Returns the demand of each process of this instance."""

PutShares = Callable[[Sequence[Shares], float], Awaitable[None]]
"""Puts shares in force: one mapping for each process, and the part of counters that are not in it."""


@dataclass(slots=True)
class Peer:
    """Another instance, and what it told last."""

    boot: int
    url: str | None
    """None: it cannot be asked."""
    turn: int = -1
    processes: list[Demands] | None = None
    heard_s: float = -inf

    @property
    def is_unheard(self) -> bool:
        return monotonic_s() - self.heard_s > _STALE_S

    def nodes(self, usual: int) -> Sequence[Demands | None]:
        """Return the demand of its processes, of which there are ``usual`` if it never told."""
        return [None] * len(self.processes or range(usual)) if self.is_unheard else self.processes or ()


class Exchange:
    """Keeps shares in force between ``start`` and ``stop``.

    ``peers`` returns the other instances by name, with their boot and the address of their admin port, None if that is
    not known; ``signing`` is None if there is no group. ``is_needed``: whether any limit is of the whole cluster.
    """

    def __init__(
        self,
        demands: AskDemands,
        share: PutShares,
        is_needed: Callable[[], bool],
        instance: str = "",
        boot: int = 0,
        signing: Signing | None = None,
        peers: Callable[[], Mapping[str, tuple[int, tuple[str, int] | None]]] = dict,
    ) -> None:
        self._ask_demands = demands
        self._put_shares = share
        self._is_needed = is_needed
        self._me = {"instance": instance, "boot": boot}
        self._signing = signing
        self._find_peers = peers
        self._peers: dict[str, Peer] = {}
        self._own: Sequence[Demands] = ()
        self._turn = 0
        self._took_s = 0.0
        self._said: tuple[int, bytes] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._job: asyncio.Task[None] | None = None

    def start(self) -> None:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        self._job = every(self._pause_s, self._take_turn, "exchange the demand for limits of the cluster")

    async def stop(self) -> None:
        if self._job is not None:
            self._job.cancel()
        if self._session is not None:
            await self._session.close()

    @property
    def unheard(self) -> int:
        """The number of instances whose demand is needed and was not heard for some time."""
        return sum(peer.is_unheard for peer in self._peers.values()) if self._is_needed() else 0

    async def tell(self) -> bytes | None:
        """Return the demand of this instance, signed, for the others; None without a group."""
        if self._signing is None:
            return None
        if self._said is None or self._said[0] != self._turn:
            turn = self._turn
            said = {**self._me, "turn": turn}
            self._said = (turn, await asyncio.to_thread(_sealed, said, self._own, self._signing))
        return self._said[1]

    def _pause_s(self) -> float:
        return max(EVERY_S, self._took_s / _MOST_BUSY)

    async def _take_turn(self) -> None:
        began_s = monotonic_s()
        self._look_up_peers()
        is_needed = self._is_needed()
        if is_needed:
            self._own = await self._ask_demands()
            self._turn += 1
            await asyncio.gather(*(self._ask(name, peer) for name, peer in self._peers.items()))
        elif not self._own:
            self._own = await self._ask_demands()  # how many processes there are
        nodes = [*self._own, *(node for peer in self._peers.values() for node in peer.nodes)]
        parts = await asyncio.to_thread(divided, nodes, len(self._own)) if is_needed else [{} for _ in self._own]
        await self._put_shares(parts, 1 / max(len(nodes), 1))
        self._took_s = monotonic_s() - began_s

    def _look_up_peers(self) -> None:
        found: dict[str, Peer] = {}
        for name, (boot, address) in self._find_peers().items():
            known = self._peers.get(name)
            url = None if address is None else f"http://{_host(address[0])}:{address[1]}{PATH}"
            found[name] = known if known is not None and (known.boot, known.url) == (boot, url) else Peer(boot, url)
        self._peers = found

    async def _ask(self, name: str, peer: Peer) -> None:
        assert self._session is not None and self._signing is not None  # noqa: S101, PT018  there are peers
        if peer.url is None:
            return
        try:
            async with self._session.get(peer.url) as answer:
                if answer.status != 200 or (answer.content_length or 0) > _MOST_BYTES:
                    return
                data = await answer.read()
            said, processes = await asyncio.to_thread(_unsealed, data, self._signing)
            if (said["instance"], said["boot"]) != (name, peer.boot) or said["turn"] < peer.turn:
                return
            peer.turn, peer.processes = said["turn"], processes
            peer.heard_s = monotonic_s()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return  # it counts with what it told last
        except (MessageError, ValueError, KeyError, TypeError) as error:
            log.warning("the demand of another instance is not understood", instance=name, error=str(error))


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


def _written(demands: Demands) -> list[list[object]]:
    return [
        [str(key.kind), key.user, key.client_id, key.broker, key.several, round(demand.used, 6), demand.waiting]
        for key, demand in demands.items()
    ]


def _read(rows: list[list[Any]]) -> dict[CounterKey, Demand]:
    return {
        CounterKey(QuotaKind(kind), user, client_id, broker, several): Demand(max(used, 0.0), max(waiting, 0))
        for kind, user, client_id, broker, several, used, waiting in rows
    }


def _sealed(said: Mapping[str, object], own: Sequence[Demands], signing: Signing) -> bytes:
    whole = {**said, "processes": [_written(each) for each in own]}
    return seal(json.dumps(whole).encode(), signing, _MOST_BYTES)


def _unsealed(data: bytes, signing: Signing) -> tuple[dict[str, Any], list[Demands]]:
    """Return what another instance told, and the demand of its processes."""
    said = json.loads(unseal(data, signing, _MOST_BYTES, 8 * _MOST_BYTES))
    if not isinstance(said, dict):
        raise MessageError("not understood: it is no mapping")
    return said, [_read(each) for each in said["processes"]]


@lru_cache(maxsize=64)
def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
