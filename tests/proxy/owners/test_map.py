"""The owner of a broker: an instance, and of its workers one."""

from collections import Counter

from config.brokers import Endpoint
from config.owners import Owners
from proxy.owners.assignment import place_brokers
from proxy.owners.map import EVERYTHING, OwnersInForce, OwnersMap, Placement, owners_of

MAP = OwnersMap(
    ((range(3), "here"), (range(3, 6), "there")), {"there": {"A": Endpoint("there.test", 7000, None)}}, ("here",)
)


def of_workers(number: int, in_force: OwnersMap | None, placed: dict[int, int]) -> list[OwnersInForce]:
    return [OwnersInForce("here", in_force, placement=Placement(worker, number, placed)) for worker in range(number)]


def test_each_broker_of_the_instance_is_owned_by_one_worker() -> None:
    workers = of_workers(2, MAP, {0: 0, 1: 1, 2: 0})
    assert [[each.owns(node_id) for node_id in range(3)] for each in workers] == [
        [True, False, True],
        [False, True, False],
    ]


def test_broker_of_other_instance_is_accepted_by_one_worker_unserved() -> None:
    workers = of_workers(3, MAP, {})
    for node_id in range(3, 6):
        assert [each.accepts(node_id) for each in workers].count(True) == 1
        assert not any(each.owns(node_id) for each in workers)


def test_all_workers_tell_the_same_address() -> None:
    for node_id in range(6):
        told = {each.elsewhere("A", node_id) for each in of_workers(2, MAP, {0: 1})}
        assert len(told) == 1
        assert (told == {None}) is (node_id < 3)


def test_a_broker_that_is_placed_nowhere_has_one_worker_all_the_same() -> None:
    workers = of_workers(3, EVERYTHING, {})
    owners = Counter(worker for node_id in range(300) for worker, each in enumerate(workers) if each.accepts(node_id))
    assert sum(owners.values()) == 300
    assert min(owners.values()) > 70


def test_worker_owns_no_broker_without_map_or_when_fenced() -> None:
    (worker,) = of_workers(1, None, {})
    assert not worker.owns(0)
    worker.replace(MAP, placement=Placement(0, 1))
    assert worker.owns(0)
    worker.replace(MAP, fenced=True, placement=Placement(0, 1))
    assert not worker.owns(0)


def test_without_the_section_the_instance_owns_all() -> None:
    assert all(owners_of(None).owns(node_id) for node_id in range(100))


def test_brokers_are_shared_out_by_load_the_heaviest_first_and_stay() -> None:
    workers = {"0": 1.0, "1": 1.0}
    load = {1: 10.0, 2: 9.0, 3: 8.0, 4: 7.0}
    placed = place_brokers(workers, {}, load, load)
    assert placed == {1: "0", 2: "1", 3: "1", 4: "0"}
    assert place_brokers(workers, placed, load, [*load, 5]) == {**placed, 5: "0"}
    assert Counter(place_brokers(workers, {}, {}, range(5)).values()) == {"0": 3, "1": 2}


def test_before_owners_are_elected_an_instance_has_no_broker_or_all() -> None:
    group = {"instance": "here", "group": "g", "secret_file": "secret"}
    waits, serves = (owners_of(Owners.model_validate(group | more)) for more in ({}, {"before_first": "serve"}))
    assert (waits.owns(1), waits.are_known) == (False, False)
    assert (serves.owns(1), serves.are_known, serves.elsewhere("A", 1)) == (True, True, None)
    serves.replace(MAP)
    assert [serves.owns(node_id) for node_id in (0, 3)] == [True, False]
