"""A queue that is fair between parties, not entries: start-time fair queueing (Goyal, Vin and Cheng, 1996).

An entry is added under a path of names, such as (user, address, client-id). Users take turns, weighted by the size of
their entries; so do the addresses of a user, and the client-ids of an address. Entries with the same path are served
first come, first served. A party with many entries therefore delays another party by about one entry, and made-up names
at the end of a path gain nothing over other parties.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import count, pairwise
from typing import Final

Path = tuple[str, ...]

FORGETS: Final = 64
"""Idle parties that are remembered, in addition to two per entry: a bound, because names can be made up."""

_LATER: Final = 1 << 62
"""Added to the number of a member that has had a turn: of equal start tags, those without one come first."""

numbers: Final = count(1)
"""Numbers of entries, in order of arrival, across all queues."""


class QueueEntry:
    """An entry of a queue. ``cost`` serves to estimate the queue ahead, ``weight`` is charged to its parties."""

    __slots__ = ("cost", "number", "parties", "weight")

    def __init__(self, number: int, cost: float, weight: float) -> None:
        self.number = number
        self.cost = cost
        self.weight = weight
        self.parties: tuple[Party, ...] = ()
        """Its parties, the widest first; empty once it is out of the queue."""

    def __lt__(self, other: "QueueEntry") -> bool:
        return self.number < other.number

    def __hash__(self) -> int:
        return self.number  # compiled, a class with an order has no hash of its own


class Party:
    """The entries of one name; the root of a queue is a party too."""

    __slots__ = ("active", "cost", "entries", "finish", "in_turns", "members", "owed", "served", "turns", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.cost = 0.0
        self.active = 0
        """The number of its members that have entries."""
        self.finish = 0.0
        """The start tag of its next entry, in the virtual time of its parent."""
        self.in_turns = False
        self.owed = 0.0
        """Weight to add to its next entry, because earlier ones weighed more than announced."""
        self.served = 0.0
        """The virtual time: the start tag of the entry that was taken last."""
        self.turns: list[tuple[float, int, str]] = []
        """A heap of start tags, one for each member; some members may have no entries left."""
        self.members: dict[str, Party] = {}
        self.entries: list[QueueEntry] = []
        """A heap, at the last name of a path; it may contain removed entries."""

    def next_member(self) -> "Party":
        """Return the member whose turn it is. Requires one with entries."""
        while True:
            member = self.members[self.turns[0][2]]
            if member.waiting:
                return member
            heappop(self.turns)
            member.in_turns = False

    def forget(self) -> None:
        """Drop the members that have no entries."""
        self.members = {name: member for name, member in self.members.items() if member.waiting}
        self.turns = [turn for turn in self.turns if turn[2] in self.members]
        heapify(self.turns)


class FairQueue:
    """Entries of many parties. All paths of one queue have the same length."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all = Party()

    def __len__(self) -> int:
        return self._all.waiting

    def __bool__(self) -> bool:
        return self._all.waiting > 0

    @property
    def cost(self) -> float:
        """The cost of all entries."""
        return self._all.cost

    def add(self, entry: QueueEntry, path: Path) -> None:
        """Add an entry, after those with the same path and a lower number."""
        party = self._all
        parties = [party]
        for name in path:
            if len(party.members) > 2 * party.waiting + FORGETS:
                party.forget()
            member = party.members.get(name)
            if member is None:
                member = party.members[name] = Party()
            if not member.in_turns:
                member.in_turns = True
                start = max(party.served, member.finish) + member.owed
                member.owed = 0.0
                heappush(party.turns, (start, entry.number, name))
            party.active += not member.waiting
            party = member
            parties.append(party)
        heappush(party.entries, entry)
        entry.parties = tuple(parties)
        for party in parties:
            party.waiting += 1
            party.cost += entry.cost

    def remove(self, entry: QueueEntry) -> None:
        """Remove an entry; does nothing if it is already out."""
        if not entry.parties:
            return
        last = entry.parties[-1]
        self._out(entry)
        if len(last.entries) > 2 * last.waiting + 8:
            last.entries = [each for each in last.entries if each.parties]
            heapify(last.entries)

    def take(self) -> QueueEntry | None:
        """Remove and return the entry whose turn it is."""
        party = self._all
        if not party.waiting:
            return None
        while party.members:
            party = party.next_member()
        while not party.entries[0].parties:
            heappop(party.entries)
        entry = party.entries[0]
        parties = entry.parties
        heappop(parties[-1].entries)
        self._out(entry)
        for party, member in pairwise(parties):
            start, _, name = party.turns[0]
            party.served = start
            member.finish = start + entry.weight + member.owed
            member.owed = 0.0
            if member.waiting:
                heapreplace(party.turns, (member.finish, next(numbers), name))
            else:
                heappop(party.turns)
                member.in_turns = False
        return entry

    def in_turn(self) -> Iterator[QueueEntry]:
        """Yield the entries in the order in which they will be taken, if no others come."""
        return _in_turn(self._all)

    def parties(self, depth: int) -> set[Path]:
        """Return the beginnings, ``depth`` names long, of the paths that have entries."""
        found: list[tuple[Path, Party]] = [((), self._all)]
        for _ in range(depth):
            found = [
                ((*path, name), member)
                for path, party in found
                for name, member in party.members.items()
                if member.waiting
            ]
        return {path for path, _ in found}

    def owe(self, path: Path, weight: float) -> None:
        """Charge ``weight`` to the parties of a path, because a served entry weighed more than announced."""
        party = self._all
        for name in path:
            member = party.members.get(name)
            if member is None:
                return
            member.owed += weight
            party = member

    def take_all(self) -> list[QueueEntry]:
        """Remove and return all entries, in the order of their numbers."""
        entries: list[QueueEntry] = []
        parties = [self._all]
        while parties:
            party = parties.pop()
            parties.extend(party.members.values())
            entries.extend([entry for entry in party.entries if entry.parties])
        self._all = Party()
        for entry in entries:
            entry.parties = ()
        return sorted(entries)

    def cost_before(self, path: Path) -> float:
        """Estimate the cost that is served before a new entry of average cost.

        Each other party gets about as much before it as its own party does.
        """
        party = self._all
        if not party.waiting:
            return 0.0
        each = party.cost / party.waiting
        parties = [party]
        for name in path:
            found = party.members.get(name)
            if found is None:
                break
            party = found
            parties.append(party)
        known = len(parties) > len(path)
        before = party.cost if known else min(party.cost, party.active * each)
        for index in range(len(parties) - 2, -1, -1):
            party, member = parties[index], parties[index + 1]
            others = party.active - (member.waiting > 0)
            before += min(party.cost - member.cost, others * (before + each))
        return before

    def _out(self, entry: QueueEntry) -> None:
        parties, entry.parties = entry.parties, ()
        above: Party | None = None
        for party in parties:
            party.waiting -= 1
            party.cost = party.cost - entry.cost if party.waiting else 0.0
            if above is not None:
                above.active -= not party.waiting
            above = party
        if not self._all.waiting:
            self._all = Party()  # reset the virtual time


def _in_turn(party: Party) -> Iterator[QueueEntry]:
    if not party.members:
        yield from sorted([entry for entry in party.entries if entry.parties])
        return
    turns = [turn for turn in party.turns if party.members[turn[2]].waiting]
    for _, _, entry in merge(*[_turns(party.members[name], start, number) for start, number, name in turns]):
        yield entry


def _turns(member: Party, start: float, number: int) -> Iterator[tuple[float, int, QueueEntry]]:
    """Yield the entries of a member, each with its start tag and a number that decides between equal ones."""
    owed = member.owed
    for entry in _in_turn(member):
        yield start, number, entry
        start += entry.weight + owed
        number, owed = entry.number + _LATER, 0.0
