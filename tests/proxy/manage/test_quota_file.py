"""Quota files as ``sluice quotas export`` writes them, and the part of a policy that Kafka can hold."""

import string
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from proxy.manage.importing import plan
from proxy.manage.quota_file import write
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.file import parse

P, C, R, M, I = QuotaKind  # noqa: E741  as in ip

NAMES = st.text(min_size=1, max_size=20) | st.sampled_from(
    [
        "<default>",
        "no",
        "1e3",
        "CN=app",
        "a b",
        "it's",
        '"',
        "#",
        "$x",
        "${x}",
        "%{if}",
        "$${x}",
        "-",
        "\\",
        "a\nb",
        "😀",
    ]
)
PLAIN_NAMES = st.text(string.ascii_lowercase + string.digits + ".-", min_size=1, max_size=12)
LIMITS: Mapping[QuotaKind, st.SearchStrategy[float]] = {
    P: st.integers(1, 2**53).map(float),
    C: st.integers(1, 2**53).map(float),
    R: st.decimals("0.000000001", 10**9, places=9, allow_nan=False).map(float),
    M: st.decimals("0.001", 10**6, places=3, allow_nan=False).map(float),
    I: st.integers(1, 2**31 - 1).map(float),
}


def name_or_default(names: st.SearchStrategy[str]) -> st.SearchStrategy[Name]:
    return names | st.just(Default.DEFAULT)


@st.composite
def policies(draw: st.DrawFn, *, ours: bool) -> Policy:
    """Return any policy; what only Sluice has is in it if it is ``ours``."""
    groups = {"g": ("u1", "u 2"), "h": ("no",)} if ours and draw(st.booleans()) else {}
    users: st.SearchStrategy[Name] = st.none() | name_or_default(NAMES | PLAIN_NAMES)
    client_ids: st.SearchStrategy[Name] = st.none() | name_or_default(NAMES)
    if ours:
        client_ids |= PLAIN_NAMES.map(Prefix)
        if groups:
            users |= st.sampled_from(["g", "h"]).map(Group)
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    terms: dict[Entity, Terms] = {}
    for group in groups:
        limits[Entity(Group(group))] = {P: 1024.0}
    for _ in range(draw(st.integers(0, 4))):
        user, client_id = draw(users), draw(client_ids)
        if user is None and client_id is None:
            entity = Entity(ip=draw(name_or_default(st.sampled_from(["10.0.0.1", "::1"]))))
        else:
            entity = Entity(user, client_id, cap=ours and draw(st.booleans()))
        kinds = [kind for kind in QuotaKind if kind.row.of_ip == (entity.ip is not None)]
        chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
        limits[entity] = {kind: draw(LIMITS[kind]) for kind in chosen}
        terms.pop(entity, None)  # those of an entity drawn before
        if ours and entity.ip is None and draw(st.booleans()):
            shadow = draw(st.booleans())
            terms[entity] = Terms(
                shadow,
                {} if shadow or draw(st.booleans()) else {chosen[0]: draw(LIMITS[chosen[0]])},
                draw(st.none() | st.integers(100, 10_000)),
                draw(st.none() | st.integers(1, 10_000)),
                not isinstance(entity.client_id, Prefix) or draw(st.booleans()),
            )
    return Policy(limits, {entity: of for entity, of in terms.items() if of != Terms()}, groups)


@given(policies(ours=True))
def test_a_quota_file_says_everything(policy: Policy) -> None:
    text, left_out = write(policy)
    assert left_out == []
    assert parse("quotas.yaml", text).policy == policy


def test_limits_that_a_quota_file_cannot_hold_are_named() -> None:
    text, left_out = write(Policy({Entity("a"): {P: 0.0, R: 1e-11, C: 5.0}, Entity("b"): {P: 0.0}}))
    assert parse("quotas.yaml", text).policy == Policy({Entity("a"): {C: 5.0}})
    assert [line.partition(":")[2] for line in left_out] == [
        " producer_byte_rate 0 is not above 0: leave it out for no limit",
        " request_percentage 9.9999999999999994e-12 has more digits than a quota file takes (19, and 9 decimals)",
        " producer_byte_rate 0 is not above 0: leave it out for no limit",
    ]


def test_rules_that_kafka_cannot_hold_are_named() -> None:
    policy = Policy(
        {
            Entity(Group("g")): {P: 1.0},
            Entity("a", cap=True): {P: 2.0},
            Entity("s"): {P: 3.0},
            Entity("b"): {P: 4.0, R: 12.5},
            Entity(None, Prefix("x")): {P: 5.0},
            Entity("n" * 300): {P: 6.0},
            Entity("z"): {P: 0.0},
        },
        {Entity("s"): Terms(shadow=True), Entity("b"): Terms(burst_ms=2000)},
        {"g": ["u"]},
    )
    found = plan(policy, Policy(), replace=False)
    assert [(each.entity, each.limits) for each in found.wanted] == [(Entity("b"), {P: 4.0, R: 12.5})]
    assert [line.partition(":")[::2] for line in found.left_out if "nnn" not in line] == [
        ("user-group=g", " is a group of users, which Kafka does not have"),
        ("cap user=a", " is a cap, which Kafka does not have"),
        ("user=s", " is in shadow: elsewhere it would be enforced"),
        ("user=b", " burst: only its limits are imported"),
        ("client-id-prefix=x", " is a prefix of client-ids, which Kafka does not have"),
        ("user=z", " producer_byte_rate: must be above 0; remove it for no limit"),
    ]
    assert "only the beginning of its name is known" in "".join(found.left_out)
