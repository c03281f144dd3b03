"""The assignment of brokers to instances, for any members: complete, the same for every leader, sticky, by load."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.owners.assignment import DRIFT_S, HYSTERESIS, Drift, assign, by_instance, place_brokers
from proxy.owners.messages import MemberMessage

NAMES = ("a", "b", "c", "d", "e")
NODES = st.integers(0, 30)


def member(instance: str, **said: Any) -> MemberMessage:
    usual = {"boot": 1, "turn": 1, "weight": 1.0, "epoch": 0, "owned": (), "load": {}, "endpoints": {}, "probe": None}
    return MemberMessage(instance=instance, **{**usual, **said})


MEMBERS = st.lists(
    st.builds(
        member,
        instance=st.sampled_from(NAMES),
        boot=st.integers(0, 5),
        weight=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        epoch=st.integers(0, 4),
        owned=st.lists(NODES, max_size=8).map(tuple),
        load=st.dictionaries(NODES, st.floats(0, 1000), max_size=8),
    ),
    min_size=1,
    max_size=8,
)


def owned_by(owners: dict[int, str]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(broker for broker, owner in owners.items() if owner == name)) for name in NAMES}


@given(MEMBERS, st.sets(NODES))
def test_every_broker_has_one_owner_among_those_that_want_load(members: list[MemberMessage], brokers: set[int]) -> None:
    named = by_instance(members)
    owners = assign(named, brokers)
    assert set(owners) == brokers | {broker for each in named.values() for broker in each.owned}
    able = {name for name, each in named.items() if each.weight} or set(named)
    assert set(owners.values()) <= able


@given(MEMBERS, st.sets(NODES), st.randoms())
def test_every_leader_computes_the_same(members: list[MemberMessage], brokers: set[int], random: Any) -> None:
    members = list({(each.instance, each.boot): each for each in members}.values())
    owners = assign(by_instance(members), brokers)
    random.shuffle(members)
    assert assign(by_instance(members), sorted(brokers, reverse=True)) == owners


@given(MEMBERS, st.sets(NODES))
def test_unchanged_members_and_load_move_no_broker(members: list[MemberMessage], brokers: set[int]) -> None:
    """All join again, claim what they own, and have the same load: no broker moves."""
    named = by_instance(members)
    owners = assign(named, brokers)
    own, load = owned_by(owners), {broker: 1.0 for each in named.values() for broker in each.load}
    load = {
        broker: cost
        for each in sorted(named.values(), key=lambda m: (m.epoch, m.instance))
        for broker, cost in each.load.items()
    }
    again = {
        name: each.model_copy(update={"owned": own[name], "epoch": 9, "load": load}) for name, each in named.items()
    }
    assert assign(again, brokers) == owners


@given(st.sets(NODES, min_size=6), st.sampled_from(NAMES[:3]))
def test_leaving_instance_moves_only_its_own_brokers(brokers: set[int], gone: str) -> None:
    first = {name: member(name) for name in NAMES[:3]}
    owners = assign(first, brokers)
    own = owned_by(owners)
    rest = {name: member(name, owned=own[name], epoch=1) for name in NAMES[:3] if name != gone}
    after = assign(rest, brokers)
    assert {broker for broker in brokers if after[broker] != owners[broker]} == set(own[gone])
    leaving = rest | {gone: member(gone, owned=own[gone], epoch=1, weight=0.0)}
    assert assign(leaving, brokers) == after


def test_idle_brokers_of_staying_instances_do_not_move_when_another_leaves() -> None:
    owners = place_brokers({"e1": 1, "e2": 1}, {1: "e1", 2: "e2"}, {1: 0.2, 2: 0.3, 3: 0.5}, [1, 2, 3])
    assert owners == {1: "e1", 2: "e2", 3: "e1"}


@given(st.dictionaries(NODES, st.tuples(st.sampled_from(NAMES), st.floats(0, 0.3)), min_size=1), st.sampled_from(NAMES))
def test_any_instance_that_leaves_moves_no_idle_broker_of_the_others(
    before: dict[int, tuple[str, float]], gone: str
) -> None:
    claims = {broker: name for broker, (name, _) in before.items() if name != gone}
    load = {broker: cost for broker, (_, cost) in before.items()}
    owners = place_brokers(dict.fromkeys(claims.values(), 1.0) or {"a": 1.0}, claims, load, before)
    assert owners.keys() == before.keys()
    assert {broker: owners[broker] for broker in claims} == claims


def test_new_instance_gets_half_of_the_idle_brokers() -> None:
    owners = place_brokers({"a": 1.0, "b": 1.0}, dict.fromkeys(range(4), "a"), dict.fromkeys(range(4), 0.1), range(4))
    assert sorted(owners.values()) == ["a"] * 2 + ["b"] * 2


@given(st.dictionaries(NODES, st.floats(1, 1000), min_size=1), st.integers(1, 5))
def test_the_busiest_could_not_give_a_broker_away_for_much(load: dict[int, float], number: int) -> None:
    members = {name: member(name, load=load, owned=tuple(load) if name == "a" else ()) for name in NAMES[:number]}
    owners = assign(members, [])
    shares = {name: sum(load[broker] for broker, owner in owners.items() if owner == name) for name in members}
    floor = sum(load.values()) / len(load) * 0.05
    mean = sum(max(each, floor) for each in load.values()) / number
    top = max(shares, key=lambda name: shares[name])
    for broker in (broker for broker, owner in owners.items() if owner == top):
        for to in members.keys() - {top}:
            better = shares[top] - max(shares[top] - load[broker], shares[to] + load[broker])
            assert better <= HYSTERESIS * mean + 2 * floor * len(load)


def test_weights_share_the_load() -> None:
    members = {"a": member("a", weight=2.0), "b": member("b", weight=1.0)}
    counts = {name: len(ids) for name, ids in owned_by(assign(members, range(30))).items() if ids}
    assert counts == {"a": 20, "b": 10}


def test_the_newest_claim_wins_and_the_later_of_two_starts_is_the_instance() -> None:
    members = {"a": member("a", owned=(1,), epoch=4), "b": member("b", owned=(1,), epoch=5), "c": member("c")}
    assert assign(members, [1])[1] == "b"
    assert by_instance([member("a", boot=2), member("a", boot=1)])["a"].boot == 2


def test_loads_are_another_when_one_has_differed_for_long_by_more_than_a_quarter_of_the_mean() -> None:
    placed_by = {"a": 100.0, "b": 100.0}
    drift = Drift()
    for now_s, load in enumerate((140.0, 130.0, 60.0, 140.0)):  # the mean is that of now
        assert drift.is_due(placed_by, {"a": load, "b": 100.0}, now_s * DRIFT_S / 3) is (now_s == 3)
    assert not drift.is_due(placed_by, {"a": 124.0, "b": 100.0}, 2 * DRIFT_S)
    assert not drift.is_due(placed_by, {"a": 140.0, "b": 100.0}, 3 * DRIFT_S)
    assert drift.is_due(placed_by, {"a": 140.0, "b": 100.0}, 4 * DRIFT_S)


def test_negligible_broker_load_causes_no_reassignment() -> None:
    drift = Drift()
    for now_s in (0.0, DRIFT_S):
        assert not drift.is_due({}, {"a": 2.0, "b": 0.0}, now_s)
