"""A quota file: what rules say beside their limits, groups and prefixes, and caps."""

from pathlib import Path

import pytest

from config.problems import ConfigError
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Terms
from quotas.stores.file import load
from tests.quotas.stores.quota_files import problems, warnings


@pytest.mark.parametrize(
    ("said", "terms"),
    [
        ("mode: shadow", Terms(shadow=True)),
        ("mode: enforce", None),
        ("burst: 5s", Terms(burst_ms=5000)),
        ("burst: 100ms, max_delay: 1ms", Terms(burst_ms=100, max_delay_ms=1)),
        ("proposed: {producer_byte_rate: 512KiB}", Terms(proposed={QuotaKind.PRODUCER_BYTE_RATE: 512.0 * 1024})),
    ],
)
def test_quota_terms_are_read_beside_its_limits(file: Path, said: str, terms: Terms | None) -> None:
    file.write_text(f"quotas:\n  - {{entity: {{user: a}}, producer_byte_rate: 1MiB, {said}}}\n")
    policy = load(file).policy
    assert policy.terms == ({Entity(user="a"): terms} if terms else {})
    assert policy.limits == {Entity(user="a"): {QuotaKind.PRODUCER_BYTE_RATE: 2.0**20}}


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("mode: shadwo", "mode: 'shadwo' is not known; did you mean shadow?"),
        ("mode: off", "mode: 'off' is not known; remove the quota, or make it shadow"),
        ("mode: [shadow]", "mode: "),
        ("burst: 5", "burst: '5' has no unit"),
        ("burst: 10ms", "burst: 10ms is too short; 100ms to 1h"),
        ("burst: 2h", "burst: 2h is too long; 100ms to 1h"),
        ("burst: 0s", "burst: is too small"),
        ("max_delay: 0s", "max_delay: is too small"),
        ("max_delay: {a: 1}", "max_delay: must be a duration"),
        ("proposed: 1MiB", "proposed: must be limits; write them like"),
        ("proposed: {}", "proposed: must be limits"),
        ("proposed: {producer_byte_rat: 1}", "proposed.producer_byte_rat: unknown limit; did you mean"),
        ("proposed: {producer_byte_rate: 0}", "proposed.producer_byte_rate: must be above 0"),
        ("proposed: {consumer_byte_rate: 1MiB}", "is proposed, but the quota has no such limit in force; add"),
        ("proposed: {producer_byte_rate: 1MiB}, mode: shadow", "proposed: cannot be combined with mode: shadow"),
        ("brust: 5s", "brust: unknown limit; did you mean burst?"),
    ],
)
def test_wrong_quota_terms_are_refused_with_their_place(file: Path, said: str, wrong: str) -> None:
    file.write_text(f"quotas:\n  - {{entity: {{user: a}}, producer_byte_rate: 1MiB, {said}}}\n")
    with pytest.raises(ConfigError) as raised:
        load(file)
    (problem,) = map(str, raised.value.problems)
    assert ":2:" in problem
    assert wrong in problem


def test_terms_without_a_limit_of_clients_are_refused(file: Path) -> None:
    for quota, wrong in (
        ("{entity: {user: a}, mode: shadow}", "sets no limit"),
        (
            "{entity: {ip: 10.0.0.1}, connection_creation_rate: 5, mode: shadow}",
            "is for quotas of users and client-ids",
        ),
    ):
        file.write_text(f"quotas:\n  - {quota}\n")
        with pytest.raises(ConfigError, match=wrong):
            load(file)


def test_burst_below_one_batch_is_warned_of(file: Path) -> None:
    (said,) = warnings(file, "quotas:\n  - {entity: {user: a}, producer_byte_rate: 10KiB, burst: 500ms}\n")
    assert "less than one batch of 16 KiB (batch.size) in 0.5 seconds: a client is held for 1.6 seconds after" in said


GROUPED = """\
groups:
  analytics: [alice, bob]   # until June
quotas:
  - {entity: {user-group: analytics}, producer_byte_rate: 1MiB}
  - {entity: {client-id: {prefix: team-a-}}, producer_byte_rate: 1MiB, shared: false}
  - {entity: {user: {default: true}, client-id: {prefix: team-}}, consumer_byte_rate: 1MiB}
"""


def test_group_and_prefix_quotas_are_loaded(file: Path) -> None:
    file.write_text(GROUPED)
    loaded = load(file)
    assert list(loaded.policy.limits) == [
        Entity(user=Group("analytics")),
        Entity(client_id=Prefix("team-a-")),
        Entity(Default.DEFAULT, Prefix("team-")),
    ]
    assert loaded.policy.terms == {Entity(client_id=Prefix("team-a-")): Terms(shared=False)}
    assert loaded.policy.group_of == {"alice": "analytics", "bob": "analytics"}
    assert (loaded.warnings, list(loaded.lines.values())) == ((), [4, 5, 6])


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (
            ("[alice, bob] ", "[alice, bob]\n  other: [carol, bob] "),
            ":3:18: groups.other[1]: 'bob' is in the group 'an",
        ),
        (("[alice, bob]", "alice"), ":2:14: groups.analytics: must be a list of users; write it like [alice, bob]"),
        (("[alice, bob]", "[]"), ":2:14: groups.analytics: must be a list of users"),
        (("[alice, bob]", "[{user: alice}]"), ":2:15: groups.analytics[0]: must be a user"),
        (("user-group: analytics", "user-group: analytic"), "no group is called 'analytic'; did you mean analytics?"),
        (("user-group: analytics", "user-group: analytics, user: bob"), "names both a user and a group"),
        (("prefix: team-a-", 'prefix: ""'), "client-id: is empty; write a name"),
        (("prefix: team-a-", f"prefix: {'x' * 64}"), "is too long for a prefix; 63 bytes are the most"),
        (("prefix: team-a-", "prefix: [a]"), "must be the beginning of client-ids"),
        (("prefix: team-a-", "prefx: team-a-"), "or {prefix: team-a-}"),
        (("shared: false", "shared: maybe"), "shared: 'maybe' is "),
        (("1MiB}\n  - {entity: {client-id", "1MiB, shared: true}\n  - {entity: {client-id"), "shared: is for a prefix"),
        (("prefix: team-}", "prefix: TEAM-}"), None),
        (("client-id: {prefix: team-}", "client-id: a"), None),
    ],
)
def test_wrong_group_or_prefix_is_refused_with_a_reason(file: Path, change: tuple[str, str], wrong: str | None) -> None:
    assert GROUPED.count(change[0]) == 1
    file.write_text(GROUPED.replace(*change))
    if wrong is None:
        load(file)
        return
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert wrong in str(raised.value)


def test_a_name_in_two_groups_is_told_with_both_places(file: Path) -> None:
    file.write_text("groups: {a: [alice]}\nquotas: []\n")
    assert "no quota is for this group" in str(load(file).warnings[0])
    file.write_text("groups:\n  a: [alice]\n  b:\n    - bob\n    - alice\nquotas: []\n")
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert ":5:7: groups.b[1]: 'alice' is in the group 'a' already, on line 2; leave it in one" in str(raised.value)


CAPS = """\
caps:
  - {entity: {user-group: tenant}, producer_byte_rate: 50MiB, burst: 2s}
  - {entity: {user: alice}, producer_byte_rate: 20MiB}
groups: {tenant: [alice, bob]}
quotas:
  - {entity: {user: alice}, producer_byte_rate: 10MiB}  # of hers alone
"""


def test_caps_stand_beside_the_quotas_of_the_same_entities(file: Path) -> None:
    file.write_text(CAPS)
    loaded = load(file)
    tenant, alice = Entity(Group("tenant"), cap=True), Entity("alice", cap=True)
    assert {
        entity: limits[QuotaKind.PRODUCER_BYTE_RATE] / 2**20 for entity, limits in loaded.policy.limits.items()
    } == {
        Entity("alice"): 10,
        tenant: 50,
        alice: 20,
    }
    assert loaded.policy.terms == {tenant: Terms(burst_ms=2000)}
    assert (loaded.lines[tenant], loaded.lines[alice], loaded.lines[Entity("alice")]) == (2, 3, 6)
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("caps", "wrong"),
    [
        ("caps: {}", "caps: must be a list of caps"),
        ("caps: [{entity: {ip: 10.0.0.1}, connection_creation_rate: 1}]", "a cap is of users and client-ids"),
        ("caps: [{entity: {user: a}}]", "caps[0]: sets no limit"),
        (
            "caps: [{entity: {user: a}, producer_byte_rate: 1MiB}, {entity: {user: a}, producer_byte_rate: 2MiB}]",
            "caps[1].entity: already has a cap; put all its limits into one: the first cap for cap user=a is on line 1",
        ),
        (
            "caps: ["
            + ", ".join(
                f"{{entity: {{client-id: {{prefix: {'a' * length}}}}}, producer_byte_rate: 1MiB}}"
                for length in range(1, 6)
            )
            + "]",
            "caps: up to 5 of producer_byte_rate may apply to one client; the most is 4",
        ),
    ],
)
def test_wrong_cap_is_refused_with_a_reason(file: Path, caps: str, wrong: str) -> None:
    (problem,) = problems(file, f"{caps}\nquotas: []\n")
    assert wrong in problem


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            "request_percentage: 0.0001",
            "0.0001 is less than a request of 0.1 ms in 10 seconds: a client is held for 100 s",
        ),
        ("request_percentage: 0.01", ""),
        (
            "controller_mutation_rate: 0.05",
            "0.05 is less than one partition in 10 seconds: a client is held for 20 sec",
        ),
        ("controller_mutation_rate: 0.1", ""),
        ("controller_mutation_rate: 1, burst: 500ms", "1 is less than one partition in 0.5 seconds"),
    ],
)
@pytest.mark.parametrize("rules", ["quotas:", "quotas: []\ncaps:"])
def test_limit_below_one_unit_is_warned_of(file: Path, rules: str, limit: str, said: str) -> None:
    found = warnings(file, f"{rules}\n  - {{entity: {{user: a}}, {limit}}}\n")
    assert len(found) == bool(said)
    assert said in "".join(found)
