"""What other limits would have done to twenty clients of one group, beside what-if with the quotas written by hand."""

import numpy as np
import pytest
from analysis.replay.recording import circumstances_of, read
from pyspark.sql import SparkSession

from analysis.client.asked import parse
from analysis.client.counters import OnCounters, counters, kinds_of, panels
from analysis.client.kept import keep, release
from analysis.client.scaled import FACTORS, scaled
from analysis.kernel.units import parse_rule
from analysis.whatif.job import whatif
from analysis.whatif.scenarios import Scenario
from quotas.entities import Entity, Group
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.analysis.records import document, row, usage

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

KIND = QuotaKind.PRODUCER_BYTE_RATE
SECONDS = 60
TEAM = [f"user-{number}" for number in range(20)]
LIMIT = 20_000.0
CAP, CAPPED = "cap client-id-prefix=a", {"produce_caps": "cap client-id-prefix=a", "produce_cap_limits": "1000000"}


def rows(second: int) -> list[dict[str, object]]:
    """All of the team at its limit; one that left it; one without a limit; and another's quota under the same cap."""
    held = {"produce_rule": "user-group=team", "produce_limit": LIMIT if second else LIMIT / 2, **CAPPED}
    left = held if second < 10 else {"produce_rule": "user=left", "produce_limit": 7.0, **CAPPED}
    amount = 3000 if second % 20 < 10 else 100
    return [
        *(row(user, "app", produce_bytes=amount, produce_requests=1, connections=1, **held) for user in TEAM),
        row("left", "app", produce_bytes=50, produce_requests=1, connections=1, **left),
        row("free", "other", produce_bytes=10**6, produce_requests=1, connections=1),
    ]


def test_others_of_a_group_are_replayed_with_it(spark: SparkSession) -> None:
    documents = [document(second, rows(second)) for second in range(SECONDS)]
    # Between them documents of others: what rows of some do not tell is not missing.
    all_rows = usage(
        spark,
        [each | {"seq": 2 * each["seq"]} for each in documents],
        [document(2 * second + 1, [row("idle", "x", bytes_in=1)], second=second) for second in range(SECONDS)],
    )
    asked = parse("user=user-3,client-id=app")
    own = all_rows.only(**asked.values)
    found = counters(own, asked, ("produce",))
    assert {(each.rule, each.cap) for each in found} == {("user-group=team", False), (CAP, True)}
    assert not any(each.is_own(asked) for each in found)
    numbers = np.unique(np.array([each.counter for each in found]))
    members = keep(all_rows, OnCounters(asked, kinds_of(asked), ("produce",), numbers))
    try:
        circumstances = circumstances_of(all_rows)
        assert circumstances.missing_documents == 0
        answer = scaled(members, panels(found, asked), circumstances, ("produce",))
        assert answer is not None
        policies = [
            Policy(
                {
                    Entity(Group("team")): {KIND: LIMIT * factor},
                    Entity("left"): {KIND: 7.0},
                    parse_rule(CAP): {KIND: 1_000_000.0},
                },
                groups={"team": TEAM},
            )
            for factor in FACTORS
        ]
        recording = read(members, [KIND], circumstances)
        by_hand = whatif(recording, [Scenario(str(n), policy) for n, policy in enumerate(policies)]).units
        expected = [each for each in by_hand.to_pylist() if each["rule"] == "user-group=team"]
    finally:
        release(members)
    assert [each["factor"] for each in answer.rows] == [*FACTORS]
    same = ("limit", "recorded_bytes", "throttled_s", "throttled_most_s", "sent_bytes", "verdict", "user")
    assert [[each[name] for name in same] for each in answer.rows] == [
        [each[name] for name in same] for each in expected
    ]
    assert answer.rows[0]["recorded_bytes"] == 20 * 30 * (3000 + 100), "of all the team, without who left it"
    assert answer.rows[0]["throttled_s"] > 0
    assert answer.rows[-1]["throttled_s"] == 0
