"""The order of Java's HashMap. What is expected was printed by Java, of tables that grew by one entity at a time."""

import pytest

from protocol.client_quotas import Described, Named, Result
from proxy.control.hash_order import _hash, in_hash_order, names_in_hash_order, results_in_hash_order


def test_string_hashes_equal_those_of_java_hashmap() -> None:
    names = {"": 0, "user": 3599307, "client-id": 2390829661, "ip": 3367, "😀": 1772899, "odd name/ü%": 1230827196}
    assert {name: _hash(name) for name in names} == names


def entity(number: int) -> tuple[Named, ...]:
    user = ("user", None if number % 7 == 6 else f"user-{number}")
    client_id = ("client-id", None if number % 5 == 4 else f"é-{number}")
    return ((user,), (client_id,), (user, client_id))[number % 3]


MANY = [15, 36, 5, 3, 33, 8, 9, 12, 20, 2, 18, 39, 13, 35, 31, 10, 16, 0, 11, 26, 27, 32, 37, 17, 24, 21, 14, 23, 38]
MANY += [1, 7, 25, 22, 29, 34, 28, 30]


@pytest.mark.parametrize(
    "expected",
    [
        [0, 1, 2],
        [0, 5, 3, 1, 2, 4],
        [5, 3, 0, 6, 1, 2, 4],
        [5, 3, 8, 9, 10, 0, 11, 6, 1, 2, 4, 7],
        [5, 3, 8, 9, 12, 1, 2, 7, 10, 0, 11, 6, 4],
        MANY,
    ],
    ids=len,
)
def test_described_entities_come_in_java_hashmap_order(expected: list[int]) -> None:
    numbers = {entity(number): number for number in range(max(expected) + 1)}
    described = [Described(each, ((str(number), 1.0),)) for each, number in numbers.items()]
    assert [int(each.limits[0][0]) for each in in_hash_order(described, len(described))] == expected


def test_alter_results_and_entity_names_come_in_broker_order() -> None:
    """As a broker of 4.3 has answered one AlterClientQuotas, that asked in another order."""
    alice, pair = (("user", "alice"),), (("client-id", None), ("user", "alice"))
    app, everybody = (("client-id", "web"),), (("user", None),)
    address, addresses = (("ip", "10.0.0.1"),), (("ip", None),)
    asked = [alice, everybody, pair, app, address, addresses]
    answered = [alice, addresses, pair, app, everybody, address]
    assert [each.entity for each in results_in_hash_order([Result(each) for each in asked])] == answered
    assert names_in_hash_order(reversed(pair)) == names_in_hash_order(pair) == pair
