"""Kafka's quotas as they lie in ZooKeeper, without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.zookeeper import tree

names = st.one_of(
    st.just(Default.DEFAULT),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda name: name not in {".", ".."}),
)


@given(names, names)
def test_a_path_says_whose_quotas_it_holds(user: str | Default, client_id: str | Default) -> None:
    for entity in (Entity(user), Entity(client_id=client_id), Entity(user, client_id)):
        path = tree.path_of(entity)
        assert tree.entity_of(path) == entity
        assert (
            tree.notification_of(path) == b'{"version":2,"entity_path":"%s"}' % path.removeprefix("/config/").encode()
        )


@pytest.mark.parametrize("path", ["/config/users/a%zz", "/config/ips/host", "/config/users/"])
def test_path_with_an_invalid_name_is_refused(path: str) -> None:
    with pytest.raises(tree.NodeError):
        tree.entity_of(path)


@pytest.mark.parametrize("path", ["/config/topics/t", "/config/users/a/clients", "/config/changes"])
def test_path_without_an_entity_is_ignored(path: str) -> None:
    assert tree.entity_of(path) is None


@pytest.mark.parametrize("text", ["1e3", " 12.5 ", "5d", ".5", "Infinity"])
def test_double_is_parsed_as_in_java(text: str) -> None:
    limits = tree.limits_of(Entity(user="a"), {"request_percentage": text})
    assert limits == {QuotaKind.REQUEST_PERCENTAGE: float(text.strip().rstrip("d"))}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ('{"version":2,"entity_path":"users/a/clients/b"}', "/config/users/a/clients/b"),
        ('{"version":1,"entity_type":"clients","entity_name":"app"}', "/config/clients/app"),
        ('{"version":1,"entity_type":"topics","entity_name":"t"}', None),
        ("NaN", None),
        ("", None),
    ],
)
def test_notification_names_the_changed_node(text: str, changed: str | None) -> None:
    assert tree.read_notification(text.encode()) == changed


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        "{}",
        '{"version":true,"entity_path":"users/a"}',
        '{"version":2,"entity_path":"users"}',
        '{"version":2,"entity_path":"other/a"}',
        '{"version":2,"entity_path":5}',
        '{"version":1,"entity_type":"clients"}',
        '{"version":2,"entity_path":"users/../b"}',
    ],
)
def test_malformed_notification_is_refused_as_such(text: str) -> None:
    with pytest.raises(tree.NotificationError):
        tree.read_notification(text.encode())
