"""Which quotas a filter selects: rows of ClientQuotasRequestTest, and what Kafka has no idea of."""

import pytest

from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.filters import Filter, FilterError, Specified, UnknownTypeError, Wanted

DEFAULT = Default.DEFAULT
ANY = Specified.ANY
BYTES = {QuotaKind.PRODUCER_BYTE_RATE: 1024.0}

USER = Entity("alice")
USER_DEFAULT = Entity(DEFAULT)
CLIENT = Entity(None, "web")
PAIR = Entity("alice", "web")
PAIR_DEFAULT = Entity("alice", DEFAULT)
IP = Entity(ip="10.0.0.1")
POLICY = Policy(
    {
        **dict.fromkeys((USER, USER_DEFAULT, CLIENT, PAIR, PAIR_DEFAULT), BYTES),
        IP: {QuotaKind.CONNECTION_CREATION_RATE: 5.0},
        Entity(None, Prefix("team-")): BYTES,
        Entity(Group("tenant")): BYTES,
        Entity("alice", cap=True): BYTES,
        Entity("nobody"): {},
    },
    groups={"tenant": ["bob"]},
)


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [USER, USER_DEFAULT, CLIENT, PAIR, PAIR_DEFAULT, IP]),
        ([], True, []),
        ([("user", "alice")], False, [USER, PAIR, PAIR_DEFAULT]),
        ([("user", "alice")], True, [USER]),
        ([("user", ANY)], True, [USER, USER_DEFAULT]),
        ([("user", DEFAULT)], True, [USER_DEFAULT]),
        ([("user", ANY)], False, [USER, USER_DEFAULT, PAIR, PAIR_DEFAULT]),
        ([("client-id", "web")], False, [CLIENT, PAIR]),
        ([("client-id", "web")], True, [CLIENT]),
        ([("client-id", ANY), ("user", ANY)], True, [PAIR, PAIR_DEFAULT]),
        ([("user", "alice"), ("client-id", DEFAULT)], True, [PAIR_DEFAULT]),
        ([("user", "bob")], False, []),
        ([("ip", "::ffff:10.0.0.1")], True, [IP]),
        ([("ip", "no address")], True, []),
        ([("ip", DEFAULT)], True, []),
        ([("ip", ANY)], False, [IP]),
    ],
)
def test_filter_selects_quotas_as_kafka_does(
    components: list[tuple[str, Wanted]], strict: bool, expected: list[Entity]
) -> None:
    selected = dict(Filter.of(components, strict=strict).select(POLICY))
    assert list(selected) == expected
    assert all(limits == POLICY.limits[entity] for entity, limits in selected.items())


def test_shortened_name_is_found_by_the_whole_name() -> None:
    long = "x" * 300
    policy = Policy({Entity(long): BYTES})
    assert [entity for entity, _ in Filter.of([("user", long)], strict=True).select(policy)] == [Entity(long)]


@pytest.mark.parametrize(
    ("components", "error", "words"),
    [
        ([("", ANY)], FilterError, "empty entity type"),
        ([("user", ANY), ("user", "a")], FilterError, "user cannot appear more than once"),
        ([("topic", ANY)], UnknownTypeError, "Unsupported entity type topic"),
        ([("ip", ANY), ("user", ANY)], FilterError, "IP filter component should not be used with"),
        ([("client-id", "a"), ("ip", DEFAULT)], FilterError, "IP filter component should not be used with"),
    ],
)
def test_invalid_filter_is_refused_with_its_reason(
    components: list[tuple[str, Wanted]], error: type[FilterError], words: str
) -> None:
    with pytest.raises(error, match=words) as found:
        Filter.of(components, strict=False)
    assert type(found.value) is error
