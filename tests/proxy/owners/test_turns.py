"""What was said once is no use later: every message of a run is sent again, to every receiver, at every later step.

The coordinator gives a member id to one process, once: a stranger can use that of a member that has just ended, if it
keeps its session, and ids of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from proxy.owners.assignment import by_instance
from proxy.owners.messages import Kind, Label, MapMessage, MessageError, Signing
from proxy.owners.turns import Turns, member_label
from tests.proxy.owners.test_assignment import member

SIGNING = Signing(b"a secret of all instances", "group")


@dataclass
class Receiver:
    """An instance, as far as it takes messages."""

    name: str
    member_id: str
    turns: Turns = field(default_factory=lambda: Turns(SIGNING))
    turn: int = 0

    def says(self) -> bytes:
        self.turn += 1
        said = member(self.name, turn=self.turn, owned=(1, 2, 3))
        return said.packed.signed(SIGNING, member_label(self.member_id))

    def takes(self, sent: bytes, generation: int) -> None:
        label = Label(Kind.MAP, self.name, self.member_id, generation)
        self.turns.take(MapMessage.unpack(sent, SIGNING, label))


@dataclass
class Run:
    """A group, step by step: each step has its members, of whom the first leads."""

    generation: int = 0
    members: Mapping[str, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)

    def step(self, *receivers: Receiver) -> None:
        self.generation += 1
        self.members = {each.member_id: each.says() for each in receivers}
        said, strangers = receivers[0].turns.read(self.members)
        assert (set(said), strangers) == (set(self.members), [])
        known = by_instance(list(said.values()))
        ids = {each.instance: member_id for member_id, each in said.items()}
        whole = MapMessage(epoch=self.generation, owners={1: receivers[0].name}, members=known, ids=ids).packed
        self.sent += self.members.values()
        for each in receivers:
            self.sent.append(whole.signed(SIGNING, Label(Kind.MAP, each.name, each.member_id, self.generation)))
            each.takes(self.sent[-1], self.generation)


def steps() -> Iterator[tuple[Run, list[Receiver], set[str]]]:
    """Yield a run after each step, who has taken part, and the member ids that the coordinator still knows: instances
    join, one ends and starts again, another one leads.
    """
    run = Run()
    a, b, c, again = (Receiver(*each) for each in (("a", "a-1"), ("b", "b-1"), ("c", "c-1"), ("b", "b-2")))
    for present in ([a], [a, b], [a, b, c], [a, c], [a, c, again], [c, again], [again, c]):
        before = set(run.members)
        run.step(*present)
        yield run, present, before | set(run.members) | {"x-1"}


def test_no_message_of_a_run_is_taken_again_by_any_receiver_at_any_later_step() -> None:
    tried = 0
    for run, receivers, member_ids in steps():
        for sent in run.sent:
            for each in receivers:
                with pytest.raises(MessageError):
                    each.takes(sent, run.generation + 1)
                for member_id in member_ids if len(each.turns._last) >= len(member_ids) - 1 else run.members:
                    assert each.turns.read({member_id: sent}) == ({}, [member_id])
                    tried += 1
    assert tried > 300


def test_message_of_an_ended_instance_is_refused_under_every_member_id() -> None:
    """It would keep the brokers of a process that has ended."""
    run, (a, b) = Run(), (Receiver("a", "a-1"), Receiver("b", "b-1"))
    run.step(a, b)
    last = run.members["b-1"]
    for member_id in ("b-1", "x-1", "a-1"):
        assert a.turns.read({member_id: last}) == ({}, [member_id])
    run.step(a)
    assert a.turns.read({"b-1": last}) == ({}, ["b-1"])


def test_map_with_an_old_message_of_a_member_is_not_taken() -> None:
    """A leader that has just started knows no turns of before; the others do."""
    run, (a, b) = Run(), (Receiver("a", "a-1"), Receiver("b", "b-1"))
    run.step(a, b)
    fresh = Receiver("c", "c-1")
    said, _ = fresh.turns.read({"b-1": run.members["b-1"], "a-1": a.says(), "c-1": fresh.says()})
    ids = {each.instance: member_id for member_id, each in said.items()}
    stale = MapMessage(epoch=2, owners={1: "b"}, members=by_instance(list(said.values())), ids=ids)
    with pytest.raises(MessageError, match="somebody has sent it again"):
        a.takes(stale.packed.signed(SIGNING, Label(Kind.MAP, "a", "a-1", 2)), 2)


def test_known_turns_do_not_grow_with_each_member_that_comes_and_goes() -> None:
    turns = Turns(SIGNING)
    for number in range(1200):
        name = f"b-{number}"
        turns.take(MapMessage(epoch=number, owners={}, members={"b": member("b")}, ids={"b": name}))
    assert len(turns._last) == 1000
    assert turns._last["b-1199"] == 1
