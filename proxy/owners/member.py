"""Membership in the group that elects the owners of brokers.

The last map stays in force while the coordinator does not answer (``FROZEN``), for as long as that takes. An instance
that the coordinator does not know any more (``FENCED``) owns nothing until it has joined again: others own its brokers.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from protocol.groups import (
    GroupError,
    Joined,
    heartbeat,
    join_group,
    leave_group,
    read_error,
    read_joined,
    read_synced,
    sync_group,
)
from proxy.owners.assignment import Drift, assign, by_instance
from proxy.owners.coordinator import ANSWER_S, REFUSED, Coordinator, NoCoordinatorError, NotAllowedError
from proxy.owners.map import OwnersMap
from proxy.owners.membership import Membership, MemberState, Status
from proxy.owners.messages import MOST_BYTES, Kind, Label, MapMessage, MemberMessage, MessageError, Signing
from proxy.owners.turns import Turns, member_label
from proxy.runtime.clock import monotonic_s, wall_s
from proxy.runtime.tasks import attempt, every

log = structlog.get_logger("sluice.owners")

PROTOCOL_TYPE: Final = "sluice"
PROTOCOL: Final = "owners-2"
_TRIES: Final = 5
_RETRY_S: Final = 0.3
_NOT_ALLOWED_S: Final = 10.0
_STRANGER_S: Final = 3.0
_LOOK_S: Final = 0.25
_MOST_REMOVED: Final = 100
"""Strangers removed in one turn: each takes a request."""
_PLACE_NEW_S: Final = 60.0
"""How long a new broker is owned by hash before the leader places it by load."""

PutOwners = Callable[[OwnersMap | None, bool], None]
"""(map, fenced) → None; puts the map in force at once."""


@dataclass(eq=False, repr=False)
class GroupMember:
    """Takes part in the election between ``start`` and ``leave``."""

    _me: Membership
    _coordinator: Coordinator
    _brokers: Callable[[], Awaitable[tuple[Collection[int], Mapping[int, float]]]]
    """Returns the known node ids, and the load of the brokers that are served here. Nothing is done before a broker is
    known, when its port is open.
    """
    _put_owners: PutOwners

    def __post_init__(self) -> None:
        self._settings, self.instance, self.boot = self._me.settings, self._me.instance, self._me.boot
        self.signing = Signing(self._me.secret, self._me.group)
        """Signs messages to the others."""
        self._turns = Turns(self.signing)
        self._turn = 0
        self._weight = self._settings.weight
        self._node_ids: Collection[int] = ()
        self._load: Mapping[int, float] = {}
        self.member_id = ""
        self._generation = -1
        self._leads = False
        self._unplaced_since_s: float | None = None
        self._drift = Drift()
        self._answered_s = self._looked_s = monotonic_s()
        self._looked_wall_s = wall_s()
        self._changing = asyncio.Lock()
        self._jobs: list[asyncio.Task[None]] = []
        self._gained = self._lost = 0
        self._has_stopped = False  # cut off (when_cut_off: stop)
        self._retry_s = _RETRY_S
        self.map: MapMessage | None = None
        self.state = MemberState.ALONE
        self.error: str | None = "it has not joined yet"
        """Why it is not a member; None if it is."""

    def start(self) -> None:
        self._jobs = [
            every(self._pause_s, self._step, "take part in the group"),
            every(_LOOK_S, self._look_at_clock, "look at the clock"),
        ]

    async def step_down(self) -> None:
        """Have all brokers owned by others, and return once they are, or that takes longer than a session."""
        if self.state is not MemberState.MEMBER:
            return
        self._weight = 0.0
        try:
            async with asyncio.timeout(self._settings.session_s), self._changing:
                await self._try(self._join)
        except TimeoutError:
            log.warning("no owners for the brokers of this instance in time", group=self._me.group)

    async def leave(self) -> None:
        for job in self._jobs:
            job.cancel()
        if self.member_id:
            await attempt("leave the group", self._say_goodbye)
        await self._coordinator.close()

    async def remove(self, instance: str, boot: int) -> bool:
        """Remove another instance, whose process of that boot has ended; return whether it was a member."""
        known = self.map
        if known is None or instance not in known.ids or known.members[instance].boot != boot:
            return False
        request = leave_group(self._me.group, known.ids[instance])
        try:
            error = read_error(await self._coordinator.ask_apart(request))
        except NoCoordinatorError:
            return False
        log.warning("instance removed: its process has ended", instance=instance, error=error or None)
        return error == GroupError.NONE

    @property
    def status(self) -> Status:
        epoch, owners = (-1, {}) if self.map is None else (self.map.epoch, dict(self.map.owners))
        age_s = monotonic_s() - self._answered_s
        return Status(self.instance, self.boot, self.state, epoch, owners, age_s, self._gained, self._lost, self.error)

    @property
    def peers(self) -> dict[str, tuple[int, tuple[str, int] | None]]:
        """The boot and the admin port of each other instance in the map."""
        known = {} if self.map is None else self.map.members
        return {name: (each.boot, each.probe) for name, each in known.items() if name != self._me.instance}

    @property
    def why_not_ready(self) -> str | None:
        """Why clients should not come here; None if they may."""
        if self.map is None and self._settings.before_first == "serve":
            return None
        if self.map is None or self._has_stopped or self.state is MemberState.FENCED:
            return f"owners: {self.error}"
        more_instances = len(self.map.members) > len(self.map.owners)
        if self._weight == 0 or more_instances or self._me.instance in self.map.owners.values():
            return None
        return "owners: this instance owns no broker"

    # ------------------------------------------------------------------------------------------------ step by step

    def _pause_s(self) -> float:
        return self._settings.heartbeat_s if self.state is MemberState.MEMBER else self._retry_s

    async def _step(self) -> None:
        async with self._changing:
            self._node_ids, self._load = await self._brokers()
            if self._node_ids:
                await self._try(self._join if self._generation < 0 else self._beat)

    async def _try(self, job: Callable[[], Awaitable[None]]) -> None:
        self._retry_s = _RETRY_S
        try:
            await job()
        except NoCoordinatorError as error:
            self._freeze(f"no coordinator: {error}")
            if self._settings.when_cut_off == "stop" and monotonic_s() - self._answered_s > self._settings.session_s:
                self._stop(stops=True)
        except NotAllowedError as error:
            self._retry_s = _NOT_ALLOWED_S
            self._fence(str(error))
            await self._say_goodbye()
        except MessageError as error:  # a stranger leads the group, or this instance is one to the others
            self._retry_s = _STRANGER_S
            self._freeze(f"map not taken: {error}")
            await self._say_goodbye()

    def _change(self, state: MemberState, error: str | None) -> None:
        if error is not None and (state, error) != (self.state, self.error):
            log.error("not a member of the group of instances", group=self._me.group, state=str(state), error=error)
        self.state, self.error = state, error

    def _freeze(self, error: str) -> None:
        self._change(MemberState.ALONE if self.map is None else MemberState.FROZEN, error)

    async def _beat(self) -> None:
        asked = heartbeat(self._me.group, self._generation, self.member_id)
        await self._heard(read_error(await self._coordinator.ask(asked)))

    async def _heard(self, error: int) -> None:
        match error:
            case GroupError.NONE:
                self._answered_s = monotonic_s()
                self._change(MemberState.MEMBER, None)
                self._stop(stops=False)
                if self._has_to_place() or self._has_other_load():
                    await self._join()
            case GroupError.REBALANCE_IN_PROGRESS:
                self._answered_s = monotonic_s()
                await self._join()
            case GroupError.UNKNOWN_MEMBER_ID | GroupError.ILLEGAL_GENERATION:
                self._replaced(error)
                await self._join()
            case _:
                await self._look_at_error(error, "Heartbeat")

    def _stop(self, *, stops: bool) -> None:
        """Own nothing, or again what the map says."""
        if self.map is not None and stops is not self._has_stopped:
            self._has_stopped = stops
            self._put_owners(self.map.owners_map, stops)

    def _replaced(self, error: int) -> None:
        """Own nothing from now on: others own its brokers. Raises MessageError if this instance never had a map."""
        if error == GroupError.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._generation = -1
        if self.map is None:
            raise MessageError("the leader has removed this instance: is owners.secret_file the same at all instances?")
        self._fence("others own the brokers of this instance")
        log.warning("replaced: others own the brokers of this instance", group=self._me.group)

    def _fence(self, error: str) -> None:
        if self.map is None:
            self._change(MemberState.ALONE, error)
            return
        self._change(MemberState.FENCED, error)
        self._put_owners(self.map.owners_map, True)

    async def _join(self) -> None:
        """Join, and take the map. Raises NoCoordinatorError, NotAllowedError, MessageError."""
        if self.state is MemberState.MEMBER:
            self._change(MemberState.JOINING, None)
        wait_s = 2.5 * self._settings.session_s
        for _ in range(_TRIES):
            self._turn += 1
            me = self._said().packed.signed(self.signing, member_label(self.member_id))
            session_ms, of = int(self._settings.session_s * 1000), {PROTOCOL: me}
            asked = join_group(
                self._me.group, self.member_id, session_ms=session_ms, protocol_type=PROTOCOL_TYPE, protocols=of
            )
            joined = read_joined(await self._coordinator.ask(asked, wait_s, longest_bytes=MOST_BYTES))
            if joined.error_code == GroupError.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif joined.error_code == GroupError.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif joined.error_code == GroupError.NONE:
                self.member_id, self._generation = joined.member_id, joined.generation
                assigned = await self._lead(joined) if joined.leader == joined.member_id else {}
                self._leads = bool(assigned)
                asked = sync_group(self._me.group, joined.generation, joined.member_id, assigned)
                synced = read_synced(await self._coordinator.ask(asked, wait_s))
                if synced.error_code == GroupError.NONE:
                    label = Label(Kind.MAP, self._me.instance, self.member_id, self._generation)
                    self._take(MapMessage.unpack(synced.assignment, self.signing, label))
                    return
                await self._look_at_error(synced.error_code, "SyncGroup")
            else:
                await self._look_at_error(joined.error_code, "JoinGroup")
        raise NoCoordinatorError("the group does not settle")

    async def _look_at_error(self, error: int, api: str) -> None:
        """Return if joining again helps."""
        match error:
            case GroupError.REBALANCE_IN_PROGRESS | GroupError.ILLEGAL_GENERATION:
                return
            case GroupError.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            case GroupError.GROUP_AUTHORIZATION_FAILED:
                raise self._coordinator.not_allowed()
            case _ if error in REFUSED:
                raise NotAllowedError(f"group {self._me.group}{REFUSED[GroupError(error)]}")
            case _:
                if error != GroupError.COORDINATOR_LOAD_IN_PROGRESS:
                    await self._coordinator.forget()
                raise NoCoordinatorError(f"{api} is answered with error {error}")

    def _said(self) -> MemberMessage:
        me, known = self._me, self.map
        owned = () if known is None else tuple(node for node, owner in known.owners.items() if owner == me.instance)
        return MemberMessage(
            instance=me.instance,
            boot=me.boot,
            turn=self._turn,
            weight=self._weight,
            epoch=-1 if known is None else known.epoch,
            owned=owned,
            load={node: round(cost, 1) for node, cost in self._load.items() if node in owned},
            endpoints=me.places,
            probe=None if me.probe is None else (me.probe.host, me.probe.port),
        )

    async def _lead(self, joined: Joined) -> dict[str, bytes]:
        """Return the map for each member."""
        said, strangers = self._turns.read(joined.members)
        for member_id in strangers[:_MOST_REMOVED]:
            await self._coordinator.ask(leave_group(self._me.group, member_id))
        members = by_instance(list(said.values()))
        owners = await asyncio.to_thread(assign, members, self._node_ids)
        ids = {each.instance: member_id for member_id, each in said.items() if members[each.instance] is each}
        whole = MapMessage(epoch=joined.generation, owners=owners, members=members, ids=ids)
        packed = whole.packed
        labels = {each: Label(Kind.MAP, by.instance, each, joined.generation) for each, by in said.items()}
        return {member_id: packed.signed(self.signing, label) for member_id, label in labels.items()}

    def _take(self, taken: MapMessage) -> None:
        me, before = self._me, self.map
        own = taken.members.get(me.instance)
        if own is not None and own.boot == me.boot and own.turn != self._turn:
            raise MessageError("it was made for a message of this instance that is not its last one")
        self._turns.take(taken)
        self._answered_s = monotonic_s()
        self.map = taken
        if own is None or own.boot != me.boot:
            raise NotAllowedError(f"another instance has the name {me.instance}: give each its own, in owners.instance")
        self._change(MemberState.MEMBER, None)
        self._has_stopped = False
        self._put_owners(taken.owners_map, False)
        mine, were = ({n for n, o in m.owners.items() if o == me.instance} if m else set() for m in (taken, before))
        self._gained += len(mine - were)
        self._lost += len(were - mine)
        log.info(
            "owners of brokers",
            epoch=taken.epoch,
            owned=sorted(mine),
            brokers=len(taken.owners),
            instances=sorted(taken.members),
            leads=self._leads,
        )

    def _has_to_place(self) -> bool:
        """Whether the leader has to place a broker that has been without a place in the map for some time."""
        if not self._leads or self.map is None or set(self._node_ids) <= self.map.owners.keys():
            self._unplaced_since_s = None
            return False
        now_s = monotonic_s()
        if self._unplaced_since_s is None:
            self._unplaced_since_s = now_s
        return now_s - self._unplaced_since_s > _PLACE_NEW_S

    def _has_other_load(self) -> bool:
        """Whether the load of this instance has been another one for minutes than it has said."""
        if self.map is None:
            return False
        said = {name: sum(each.load.values()) for name, each in self.map.members.items()}
        now = {**said, self._me.instance: sum(self._said().load.values())}
        return self._drift.is_due(said, now, monotonic_s())

    async def _say_goodbye(self) -> None:
        """Leave the group; nothing is known of the answer."""
        asked, self.member_id, self._generation = leave_group(self._me.group, self.member_id), "", -1
        try:
            await self._coordinator.ask(asked)
        except (NoCoordinatorError, NotAllowedError) as error:
            log.info("the group was not left: the session ends by itself", error=str(error))

    # ------------------------------------------------------------------------------------------------- a sleeper

    def _look_at_clock(self) -> None:
        """After a sleep longer than the session (SIGSTOP, a paused machine), ask before anything else is done.

        The loop waits for the answer, so no byte of a client is read before: others may own the brokers by now.
        """
        now_s, wall = monotonic_s(), wall_s()
        slept_s = max(now_s - self._looked_s, wall - self._looked_wall_s)
        self._looked_s, self._looked_wall_s = now_s, wall
        if slept_s <= self._settings.session_s or self._generation < 0 or self.map is None:
            return
        log.warning("this process has slept: asking whether it still owns brokers", slept_s=round(slept_s, 1))
        answers: list[int] = []

        def ask() -> None:
            asked = heartbeat(self._me.group, self._generation, self.member_id)
            with suppress(NoCoordinatorError):
                answers.append(read_error(asyncio.run(self._coordinator.ask_apart(asked))))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(ANSWER_S)
        if not answers:
            self._freeze("no answer after a sleep")
        elif answers[0] in (GroupError.UNKNOWN_MEMBER_ID, GroupError.ILLEGAL_GENERATION):
            self._replaced(answers[0])
