import pytest

from quotas.entities import Default, Entity, Name
from quotas.names import counted_as

DEFAULT = Default.DEFAULT


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (Entity(user="alice"), "user=alice"),
        (Entity(user="alice", client_id=DEFAULT), "user=alice, client-id=<default>"),
        (Entity(client_id="<default>"), "client-id='<default>'"),
        (Entity(client_id="a, user=b"), "client-id='a, user=b'"),
        (Entity(client_id="\x1b[31m\n"), r"client-id='\x1b[31m\n'"),
        (Entity(user="müller"), "user=müller"),
        (Entity(ip=DEFAULT), "ip=<default>"),
        (Entity(ip="::1"), "ip=::1"),
    ],
)
def test_describe_tells_names_from_the_default_and_from_syntax(entity: Entity, text: str) -> None:
    assert entity.describe() == text


def test_a_name_is_never_the_default() -> None:
    assert Entity(client_id="<default>") != Entity(client_id=DEFAULT)
    assert len({Entity(client_id="<default>"), Entity(client_id=DEFAULT), Entity(client_id=DEFAULT)}) == 2


@pytest.mark.parametrize(
    ("user", "client_id", "ip", "complaint"),
    [
        (None, None, None, "needs a user, a client-id or an ip"),
        ("alice", None, "10.0.0.1", "ip cannot be combined"),
        (None, DEFAULT, DEFAULT, "ip cannot be combined"),
        ("", None, None, "user is empty"),
        ("alice", "", None, "client-id is empty"),
        (None, None, "", "ip is empty"),
    ],
)
def test_impossible_entities_are_refused(user: Name, client_id: Name, ip: Name, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Entity(user, client_id, ip)


def test_a_long_name_is_the_one_that_clients_are_counted_by() -> None:
    entity = Entity(user="u" * 1000, client_id="c" * 1000)
    assert (entity.user, entity.client_id) == (counted_as("u" * 1000), counted_as("c" * 1000))
    assert entity == Entity(entity.user, entity.client_id)
