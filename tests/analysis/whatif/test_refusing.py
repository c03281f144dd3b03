"""What-if of what is refused: partitions by a token bucket, connections by the rate of their address."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from analysis.kernel.target import parse_target
from analysis.recommend import quota_file
from analysis.recommend.choices import Choices
from analysis.recommend.job import recommend
from analysis.recommend.whose import by_records, by_rules
from analysis.replay.recording import read
from analysis.whatif import comparison
from analysis.whatif import page as comparison_page
from analysis.whatif.job import WhatIf, whatif
from analysis.whatif.scenarios import Scenario, assign, not_replayed
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from tests.analysis.records import Document, document, row, usage

MUTATIONS, CONNECTIONS = QuotaKind.CONTROLLER_MUTATION_RATE, QuotaKind.CONNECTION_CREATION_RATE
PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
SECONDS = 60
pytestmark = pytest.mark.spark


def address(ip: str, attempts: int, refused: int = 0, **columns: Any) -> dict[str, Any]:
    """What a proxy writes of an address: a row of nobody."""
    held_ms = 500 if refused else 0
    figures = {"connection_attempts": attempts, "connection_throttled": refused, "connection_muted_ms": held_ms}
    return row(None, None, broker=-1, ip=ip, **figures, **columns)


def recorded() -> list[Document]:
    documents = []
    for second in range(SECONDS):
        rows = [
            address("10.0.0.5", 6),
            address("10.0.0.6", 9, 4, connection_limit=5.0, connection_rule="ip=<default>"),
            address("other", 3),
            address("10.0.0.7", 50, exempt=True),
            row("mirror", "mm2", produce_bytes=10**8, produce_requests=1, exempt=True),
            row("eve", "team-a-1", produce_bytes=400_000, produce_requests=4, broker=1),
            row("eve", "team-a-2", produce_bytes=400_000, produce_requests=4, broker=1),
        ]
        if second % 10 == 0:  # 40 partitions each ten seconds, by turns through two brokers
            creates = {"mutation_partitions": 40, "mutation_requests": 4}
            rows.append(row("alice", "admin", broker=1 + second // 10 % 2, **creates))
        documents.append(document(second, rows))
    return documents


ALICE = Entity(user="alice")
TEAM = {Entity(client_id=Prefix("team-a-")): {PRODUCE: 600_000.0}}
PROPOSED = {
    "addresses": Policy({Entity(ip=Default.DEFAULT): {CONNECTIONS: 3}, Entity(ip="10.0.0.6"): {CONNECTIONS: 20}}),
    "enough": Policy({ALICE: {MUTATIONS: 4.0}}),
    "scarce": Policy({ALICE: {MUTATIONS: 2.0}}),
    "prefix": Policy(TEAM),
    "each": Policy(TEAM, {Entity(client_id=Prefix("team-a-")): Terms(shared=False)}),
    "group": Policy({Entity(user=Group("evil")): {PRODUCE: 600_000.0}}, groups={"evil": ["eve"]}),
    "everybody": Policy({Entity(user=Default.DEFAULT): {PRODUCE: 1e6}}),
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> WhatIf:
    scenarios = [Scenario(name, policy) for name, policy in PROPOSED.items()]
    return whatif(read(usage(spark, recorded())), scenarios)


def unit(found: WhatIf, scenario: str, kind: QuotaKind, user: str = "", ip: str = "") -> dict[str, Any]:
    wanted = {"scenario": scenario, "kind": kind.value, "user": user, "ip": ip}
    [mine, *_] = [each for each in found.units.to_pylist() if wanted.items() <= each.items()]
    return dict(mine)


def _of(found: WhatIf, user: str) -> list[int]:
    return [number for number, client in enumerate(found.recording.clients) if client.user == user]


def test_addresses_are_refused_by_the_rate_that_is_proposed(found: WhatIf) -> None:
    five, six = (unit(found, "addresses", CONNECTIONS, ip=f"10.0.0.{last}") for last in (5, 6))
    assert (five["verdict"], five["answer"], five["limit"], five["rule"]) == ("yes", "exact", 3.0, "ip=<default>")
    assert five["recorded_bytes"] == 6 * SECONDS
    assert five["sent_bytes"] == pytest.approx(3 * SECONDS, abs=3 * 11)
    assert five["delay_p99_s"] == 0, "nobody is served late"
    assert (six["verdict"], six["answer"], six["before_throttled_requests"]) == ("no", "interval", 4 * SECONDS)
    assert six["recorded_bytes"] == 9 * SECONDS


def test_a_bucket_is_of_the_cluster_whichever_brokers_are_used(found: WhatIf) -> None:
    """40 each ten seconds, with a burst of eleven seconds' worth: 4 a second are enough, 2 are not."""
    enough, scarce = (unit(found, name, MUTATIONS, "alice") for name in ("enough", "scarce"))
    assert (enough["verdict"], enough["broker"], enough["recorded_bytes"]) == ("no", -1, 240)
    assert (scarce["verdict"], scarce["answer"]) == ("yes", "exact")
    # 22 at first, and 2 a second: 142 by the end of the minute, and the last request that goes is carried out whole.
    assert 132 <= scarce["sent_bytes"] <= 152
    assert scarce["sent_bytes"] + scarce["waiting_bytes"] == 240
    assert scarce["delay_p99_s"] > 10


def test_a_prefix_and_a_group_are_one_counter(found: WhatIf) -> None:
    prefix = unit(found, "prefix", PRODUCE)
    assert (prefix["client_id"], prefix["verdict"]) == ("team-a-*", "yes")
    of_group = unit(found, "group", PRODUCE, "group:evil")
    assert (of_group["verdict"], of_group["recorded_bytes"]) == ("yes", 800_000 * SECONDS)
    each = unit(found, "each", PRODUCE)
    assert (each["verdict"], each["recorded_bytes"]) == ("no", 400_000 * SECONDS)


def test_who_is_exempt_is_in_no_figure_and_it_is_said(found: WhatIf) -> None:
    sums = comparison.totals(found, "everybody")
    assert sums.recorded_bytes == 800_000 * SECONDS
    assert sums.throttled == 0
    notes = " ".join(found.recording.circumstances.notes())
    assert "exempt clients (quotas.exempt) are left out" in notes
    assert "180 connections of addresses beyond usage.max_addresses are left out" in notes


def test_a_quota_that_is_not_replayed_holds_nobody_and_those_it_holds_are_left_out(found: WhatIf) -> None:
    eve, mirror = Entity(user="eve"), Entity(user="mirror")
    policy = Policy({eve: {PRODUCE: 1.0}, mirror: {PRODUCE: 1.0}}, {eve: Terms(burst_ms=2000)})
    units = whatif(found.recording, [Scenario("q", policy, frozenset((eve,)))]).units.to_pylist()
    assert not [each for each in units if each["user"] == "eve"]
    assert {each["kind"] for each in units if not each["ip"]} == {MUTATIONS}


def test_whom_a_cap_on_a_bucket_would_hold_is_left_out_by_name(found: WhatIf) -> None:
    """Of that kind alone: what else it caps is replayed."""
    cap = Entity(user="alice", cap=True)
    policy = Policy({cap: {MUTATIONS: 1.0, PRODUCE: 1e6}, Entity(user="eve"): {PRODUCE: 9e5}})
    unknown = not_replayed(policy)
    assert unknown == {cap: [MUTATIONS.value]}
    scenario = Scenario("q", policy, frozenset(unknown))
    assert set(assign(found.recording, scenario, MUTATIONS).index.tolist()) == {-1}
    assert -1 not in assign(found.recording, scenario, PRODUCE).index[_of(found, "eve")]
    asked = whatif(found.recording, [scenario])
    [left_out] = asked.left_out
    assert (left_out.kind, left_out.clients) == (MUTATIONS, ("alice / admin",))
    assert "cap user=alice" in left_out.reason
    assert "left out: mutation of alice / admin: cap user=alice says what is not replayed" in comparison.text(asked, 5)
    assert "alice / admin" in comparison.as_json(asked)


def test_the_smallest_bucket_that_meets_a_target(found: WhatIf) -> None:
    choices = Choices(parse_target("p99 throttle < 100 ms"))
    recommended = {each.user: each for each in recommend(found.recording, choices)}
    assert recommended.keys() == {"alice", "eve"}, "not who is exempt"
    [need] = recommended["alice"].needs
    assert need.kind is MUTATIONS
    assert 4 <= need.needed <= 4.5, "40 each ten seconds"
    said = quota_file.write(list(recommended.values()), choices, "p99", found.recording.circumstances)
    assert "connection_creation_rate is left out: its limits are for addresses" in said


@pytest.mark.parametrize(("target", "enough"), [("p99 throttle < 100 ms", True), ("throttled share < 20 %", False)])
def test_the_smallest_rate_of_addresses_that_meets_a_target(found: WhatIf, target: str, enough: bool) -> None:
    """Of those under a default, the one that needs most decides; what-if agrees that no, or hardly any, are refused."""
    choices = Choices(parse_target(target), None)
    present = Policy({Entity(ip=Default.DEFAULT): {CONNECTIONS: 3.0}, Entity(ip="10.0.0.6"): {CONNECTIONS: 20.0}})
    needs = {
        each.ip: need
        for each in recommend(found.recording, choices, by_rules(found.recording, present, choices))
        for need in each.needs
        if each.ip
    }
    assert {need.kind for need in needs.values()} == {CONNECTIONS}
    of_default, of_six = needs[Default.DEFAULT], needs["10.0.0.6"]
    assert (of_default.unit.ip, of_six.unit.ip) == ("10.0.0.5", "10.0.0.6"), "neither others nor who is exempt"
    assert (of_default.answer, of_six.answer) == ("exact", "interval")
    assert of_six.low_because, "a minute was recorded"
    for ip, need, attempts in (("10.0.0.5", of_default, 6), ("10.0.0.6", of_six, 9)):
        assert need.needed <= attempts * 1.2
        limits = {Entity(ip=ip): {CONNECTIONS: need.needed * 1.01}}
        less = {Entity(ip=ip): {CONNECTIONS: need.needed * 0.8}}
        tried = whatif(found.recording, [Scenario("needed", Policy(limits)), Scenario("less", Policy(less))])
        refused = {
            name: 1 - each["sent_bytes"] / each["recorded_bytes"]
            for name in ("needed", "less")
            for each in [unit(tried, name, CONNECTIONS, ip=ip)]
        }
        if ip == "10.0.0.5":
            assert (refused["needed"] <= 0.01) == enough
            assert refused["less"] > 0.01


def test_rates_of_addresses_are_those_of_rules_that_there_are(found: WhatIf) -> None:
    choices = Choices(parse_target("p99 throttle < 100 ms"), None)
    wanted = by_records(found.recording, choices)
    assert [each for each in wanted.holders if each[2]] == [(None, None, Default.DEFAULT)]
    assert wanted.outside()[-1] == "1 address connecting under no quota"
    nobody = by_rules(found.recording, Policy({Entity(user="eve"): {PRODUCE: 1e6}}), choices)
    assert not [each for each in nobody.outside() if "address" in each]
    written = quota_file.write(
        recommend(found.recording, choices, wanted), choices, "p99", found.recording.circumstances
    )
    assert "{ip: {default: true}}" in written


def test_text_and_page_name_the_address_and_what_it_was_doing(found: WhatIf) -> None:
    for said in (comparison.text(found, 20), comparison_page.render(found)):
        assert "10.0.0.5" in said
        assert "connecting" in said
        assert "3 connections/s" in said
        assert "mirror" not in said
        assert "10.0.0.7" not in said
