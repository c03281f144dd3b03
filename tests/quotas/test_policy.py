import pytest

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Book, Key, Policy

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
CONNECTIONS = QuotaKind.CONNECTION_CREATION_RATE


def test_limits_are_indexed_by_kind() -> None:
    policy = Policy(
        {
            Entity(user="alice", client_id=Default.DEFAULT): {PRODUCE: 5, QuotaKind.REQUEST_PERCENTAGE: 0.5},
            Entity(client_id="app"): {PRODUCE: 7},
            Entity(ip="10.0.0.1"): {CONNECTIONS: 3},
        }
    )
    assert policy.book(PRODUCE).limits == {("alice", Default.DEFAULT): 5.0, (None, "app"): 7.0}
    assert policy.book(QuotaKind.REQUEST_PERCENTAGE).limits == {("alice", Default.DEFAULT): 0.5}
    assert policy.book(QuotaKind.CONSUMER_BYTE_RATE).limits == {}
    assert policy.book(CONNECTIONS).limits == {("10.0.0.1", None): 3.0}


@pytest.mark.parametrize(
    ("entity", "kind", "complaint"),
    [
        (Entity(ip="10.0.0.1"), PRODUCE, "producer_byte_rate is not a quota of ip=10.0.0.1"),
        (Entity(user="u"), CONNECTIONS, "connection_creation_rate is not a quota of user=u"),
    ],
)
def test_a_kind_that_the_entity_cannot_have_is_refused(entity: Entity, kind: QuotaKind, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Policy({entity: {kind: 1}})


def test_policy_differences_list_added_changed_and_removed_limits() -> None:
    old: dict[Key, float] = {("a", None): 1.0, ("b", None): 2.0, ("c", None): 3.0}
    new: dict[Key, float] = {("b", None): 2.0, ("c", None): 4.0, ("d", None): 5.0}
    assert Book(old).differences(Book(new)) == ({("d", None)}, {("c", None)}, {("a", None)})
    assert Book(new).differences(Book(dict(new))) == (set(), set(), set())
