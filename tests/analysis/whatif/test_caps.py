"""What-if with caps: all counters that match are charged, the stricter holds, and the sum of a tenant is its cap."""

from typing import Any, Final

import numpy as np
import pytest
from pyspark.sql import SparkSession

from analysis.kernel.fluid import replay
from analysis.replay.recording import Recording, read
from analysis.whatif import capped, comparison
from analysis.whatif import page as comparison_page
from analysis.whatif.job import WhatIf, whatif
from analysis.whatif.scenarios import Scenario
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from tests.analysis.loads import MB, Load, documents
from tests.analysis.records import usage

pytestmark = pytest.mark.spark

SECONDS: Final = 240
CLIENTS: Final = 20
PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
EACH_CLIENT_ID = Entity(client_id=Default.DEFAULT)
TENANT = Entity(user=Group("tenant"), cap=True)
BATCH = Entity(client_id=Prefix("batch-"), cap=True)
GROUPS: Final = {"tenant": [f"user-{number}" for number in range(CLIENTS)]}
STEADY: Final = np.full(SECONDS, 0.1 * MB)
TENANTS: Final = [Load(f"user-{number}", "batch-1" if number % 4 == 0 else "app", STEADY) for number in range(CLIENTS)]
ELSE: Final = Load("zoe", "batch-9", np.full(SECONDS, 0.3 * MB))
"""Under the cap of the prefix, and of no tenant."""
FREE: Final = Load("fay", "app", np.full(SECONDS, 0.5 * MB))
RECORDED: Final = "cap user-group=tenant"
SCENARIOS: Final = {
    "tenant": Policy({TENANT: {PRODUCE: MB}}, groups=GROUPS),
    "both": Policy({TENANT: {PRODUCE: MB}, BATCH: {PRODUCE: 0.4 * MB}}, groups=GROUPS),
    "quotas": Policy(
        {Entity(Default.DEFAULT): {PRODUCE: 0.03 * MB}, TENANT: {PRODUCE: MB}, Entity("fay"): {PRODUCE: MB}},
        groups=GROUPS,
    ),
    "wide": Policy({TENANT: {PRODUCE: 9 * MB}, Entity("fay"): {PRODUCE: 0.2 * MB}}, groups=GROUPS),
    "shadow": Policy({TENANT: {PRODUCE: 1.0}}, {TENANT: Terms(shadow=True)}, GROUPS),
    "each": Policy({BATCH: {PRODUCE: 0.2 * MB}}, {BATCH: Terms(shared=False)}),
}


@pytest.fixture(scope="module")
def recording(spark: SparkSession) -> Recording:
    return read(usage(spark, documents([*TENANTS, ELSE, FREE])))


@pytest.fixture(scope="module")
def found(recording: Recording) -> WhatIf:
    return whatif(recording, [Scenario(name, policy) for name, policy in SCENARIOS.items()])


def units(found: WhatIf, scenario: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["user"], each["client_id"]): each for each in found.units.to_pylist() if each["scenario"] == scenario}


def alone(load: Load, limit: float) -> float:
    """Return what passes of it under one limit, by the model of one counter."""
    return float(replay(load.demand, [limit]).sent_bytes[0, 0])


def test_the_sum_of_twenty_is_what_their_cap_would_let_pass(found: WhatIf) -> None:
    mine = units(found, "tenant")
    tenant = mine["cap:group:tenant", ""]
    together = replay(Load("", "", CLIENTS * STEADY).demand, [MB])
    assert (tenant["rule"], tenant["limit"], tenant["verdict"]) == (TENANT.describe(), MB, "yes")
    assert tenant["recorded_bytes"] == CLIENTS * STEADY.sum()
    assert tenant["sent_bytes"] == pytest.approx(together.sent_bytes[0, 0], rel=0.01)
    assert tenant["throttled_s"] == pytest.approx(together.throttled_s[0, 0], abs=2)
    app, batch = mine["", "app"], mine["", "batch-1"]
    assert (app["limit"], app["held_by"], app["verdict"]) == (None, TENANT.describe(), "yes")
    # Three quarters of the tenant, and fay, whom no cap holds.
    assert app["sent_bytes"] == pytest.approx(0.75 * tenant["sent_bytes"] + FREE.sent_bytes.sum(), rel=0.02)
    assert batch["sent_bytes"] == pytest.approx(0.25 * tenant["sent_bytes"], rel=0.02)
    assert mine["", "batch-9"]["verdict"] == "no"
    assert mine["", "batch-9"]["held_by"] is None


def test_both_of_two_caps_are_charged_and_the_stricter_holds(found: WhatIf) -> None:
    mine = units(found, "both")
    batch = mine["", "cap:batch-*"]
    assert batch["recorded_bytes"] == 5 * STEADY.sum() + ELSE.sent_bytes.sum()
    assert batch["sent_bytes"] == pytest.approx(alone(Load("", "", 5 * STEADY + ELSE.sent_bytes), 0.4 * MB), rel=0.03)
    # A little less than it may: where caps cross, what one of them keeps back others have a second later.
    all_of_it = alone(Load("", "", CLIENTS * STEADY), MB)
    assert 0.93 * all_of_it < mine["cap:group:tenant", ""]["sent_bytes"] < 1.01 * all_of_it
    assert mine["", "batch-9"]["held_by"] == BATCH.describe()
    assert mine["", "batch-9"]["verdict"] == "yes"


def test_where_the_quotas_are_stricter_the_cap_holds_nobody(found: WhatIf) -> None:
    """Twenty times 0.03 is less than the tenant may have."""
    mine = units(found, "quotas")
    for number in range(CLIENTS):
        row = mine[f"user-{number}", ""]
        assert (row["held_by"], row["verdict"]) == ("user=<default>", "yes")
        assert row["sent_bytes"] == pytest.approx(alone(TENANTS[number], 0.03 * MB), rel=0.01)
    tenant = mine["cap:group:tenant", ""]
    assert tenant["sent_bytes"] == pytest.approx(sum(mine[f"user-{n}", ""]["sent_bytes"] for n in range(CLIENTS)))
    assert tenant["throttled_s"] <= 15, "at most what the bursts of all together ask for at the begin"
    assert mine["fay", ""]["verdict"] == "no"


def test_what_no_cap_can_hold_is_replayed_as_without_one(found: WhatIf) -> None:
    mine = units(found, "wide")
    assert mine["cap:group:tenant", ""]["verdict"] == "no"
    assert mine["cap:group:tenant", ""]["sent_bytes"] == CLIENTS * STEADY.sum()
    assert mine["fay", ""]["throttled_s"] == replay(FREE.demand, [0.2 * MB]).throttled_s[0, 0]
    assert mine["fay", ""]["held_by"] == "user=fay"
    assert {each["verdict"] for each in units(found, "shadow").values()} == {"no"}


def test_with_shared_false_each_client_id_has_a_counter(found: WhatIf) -> None:
    mine = units(found, "each")
    assert mine["", "cap:batch-1"]["recorded_bytes"] == 5 * STEADY.sum()
    assert mine["", "cap:batch-9"]["sent_bytes"] == pytest.approx(alone(ELSE, 0.2 * MB), rel=0.01)


def test_text_and_page_name_the_cap(found: WhatIf) -> None:
    for said in (comparison.text(found, 50), comparison_page.render(found)):
        assert "cap:group:tenant" in said
        assert "cap user-group=tenant" in said
    assert f"by {TENANT.describe()}" in comparison.text(found, 50)


def test_a_crowd_under_one_cap_is_charged_whole_and_named_where_it_has_no_lines(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capped, "MOST_FLOWS", 5)
    policy = Policy({**SCENARIOS["tenant"].limits, Entity(Default.DEFAULT): {PRODUCE: 5 * MB}}, groups=GROUPS)
    asked = whatif(recording, [Scenario("crowd", policy)])
    mine = units(asked, "crowd")
    tenant = mine["cap:group:tenant", ""]
    assert tenant["recorded_bytes"] == CLIENTS * STEADY.sum()
    assert tenant["sent_bytes"] == pytest.approx(alone(Load("", "", CLIENTS * STEADY), MB), rel=0.01)
    shown = [user for user, _ in mine if user.startswith("user-")]
    [left_out] = asked.left_out
    assert (len(shown), len(left_out.clients)) == (4, CLIENTS - 4)
    assert {name.split(" / ")[0] for name in left_out.clients}.isdisjoint(shown)


@pytest.fixture(scope="module")
def held(spark: SparkSession) -> Recording:
    """Recorded under a cap: each has half of what it wants in the first half of the time, and makes up for it then."""
    muted_s = np.where(np.arange(SECONDS) < SECONDS // 2, 0.9, 0.0)
    sent = np.where(np.arange(SECONDS) < SECONDS // 2, 0.5 * MB, 0.1 * MB)
    loads = [
        Load(user, "app", sent, limit=5 * MB, rule="user=<default>", muted_s=muted_s) for user in GROUPS["tenant"][:2]
    ]
    made = list(documents(loads))
    for document in made:
        count = len(document["rows"]["user"])
        document["rows"]["produce_caps"] = [RECORDED] * count
        document["rows"]["produce_cap_limits"] = ["1000000"] * count
        document["rows"]["produce_cap_muted_ms"] = document["rows"]["produce_muted_ms"]
        document["rows"]["produce_cap_rule"] = [RECORDED if ms else None for ms in document["rows"]["produce_muted_ms"]]
    return read(usage(spark, made))


def test_who_was_held_by_a_cap_is_known_within_bounds_and_not_by_its_quota(held: Recording) -> None:
    """The quota is proposed as it was: without the cap nobody need be throttled."""
    used = held.used[PRODUCE]
    assert used.caps == (RECORDED, RECORDED)
    assert used.cap_rules == (RECORDED, RECORDED)
    assert used.cap_held_s == pytest.approx(used.muted_s)
    each = Entity(Default.DEFAULT)
    policies = {
        "without": Policy({each: {PRODUCE: 5 * MB}}),
        "with": Policy({each: {PRODUCE: 5 * MB}, TENANT: {PRODUCE: MB}}, groups=GROUPS),
    }
    asked = whatif(held, [Scenario(name, policy) for name, policy in policies.items()])
    without, with_ = (units(asked, name)["user-0", ""] for name in policies)
    assert (without["answer"], without["throttled_least_s"]) == ("interval", 0)
    assert without["before_throttled_s"] == pytest.approx(0.9 * SECONDS / 2)
    assert with_["verdict"] in {"yes", "possibly"}
    assert with_["throttled_least_s"] <= SECONDS / 2 <= with_["throttled_most_s"]
    assert with_["held_by"] == TENANT.describe()
