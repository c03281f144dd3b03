"""What-if tells the truth: predicted from what one run recorded, measured in another one, against real brokers.

The same demand falls due in three runs: with quotas out of reach, with the quotas that are proposed, and with the
ones that are recommended. Prediction and recommendation are those of the commands, from the topic of the first run.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

from quotas.rate import Window
from quotas.stores.file import load
from tests.harness.kafka import KafkaCluster
from tests.integration.analyzed import Analyzed
from tests.integration.demanded import OUT_OF_REACH, QUOTA, QUOTA_OF, Plan, Run, Stage
from tests.integration.recorded import Counter, rows

pytestmark = [pytest.mark.matrix, pytest.mark.spark, pytest.mark.timeout(1200)]

SHARE_TOLERANCE: Final = 0.05
BYTES_TOLERANCE: Final = 0.05
TARGET_S: Final = 1
TARGET: Final = f"p99 throttle < {TARGET_S} s"
SPARE: Final = 1.15 * 1.1
"""What a recommended quota is at most above what is needed: headroom, and two digits rounded up."""
SIZED: Final = {"under", "near", "over", "leaks", "catches-up", "reads-over", "reads-under"}
"""Who was seen for long enough."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The same demand, three times; and what the first and the second one recorded."""

    stage: Stage
    free: Run
    proposed: Run
    recommended: Run
    of_free: Analyzed
    of_proposed: Analyzed

    @property
    def seconds(self) -> int:
        return self.stage.plan.seconds


@pytest.fixture(
    scope="module",
    params=[Plan(Window(12, 500), 64), Plan(Window(), 110)],
    ids=["short window", "default window"],
)
def runs(request: pytest.FixtureRequest, cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    stage = Stage(cluster, request.param)
    everybody = np.ones(len(stage.counters))
    free = stage.run_on_time(everybody * OUT_OF_REACH)
    of_free = Analyzed.of(cluster.bootstrap, free.usage_topic, tmp_path_factory.mktemp("free"))
    proposed = stage.run_on_time(everybody * QUOTA)
    of_proposed = Analyzed.of(cluster.bootstrap, proposed.usage_topic, tmp_path_factory.mktemp("proposed"))
    advised = load(of_free.recommend(TARGET)).policy
    return Runs(stage, free, proposed, stage.run_on_time(stage.limits(advised)), of_free, of_proposed)


def test_every_byte_of_the_wire_is_recorded(runs: Runs) -> None:
    for run in (runs.free, runs.proposed, runs.recommended):
        sums = dict.fromkeys(runs.stage.counters, 0)
        for row in rows(run.documents):
            for word in QUOTA_OF:
                counter = Counter(row["client_id"], row["broker"], word)
                if counter in sums:
                    sums[counter] += row[f"{word}_bytes"]
        for counter, sent in zip(runs.stage.counters, run.loads, strict=False):
            assert sent.errors == []
            assert sums[counter] == sum(answer.charged_bytes for answers in sent.connections for answer in answers)


def test_every_byte_of_the_wire_is_in_the_warehouse(runs: Runs) -> None:
    for run, analyzed in ((runs.free, runs.of_free), (runs.proposed, runs.of_proposed)):
        for client, sent in zip(runs.stage.clients, run.loads, strict=True):
            produced, fetched = analyzed.bytes_of(client.client_id, client.broker)
            charged = sum(answer.charged_bytes for answers in sent.connections for answer in answers)
            assert (produced if client.word == "produce" else fetched) == charged


def test_recorded_mutes_are_those_that_clients_were_told(runs: Runs) -> None:
    """What is measured rests on records; clients that count for themselves agree.

    A Fetch waits before it is sent, and its client is told no more than what is left when the answer goes.
    """
    run = runs.proposed
    told = [each.throttled_share(run.begin_s, run.begin_s + runs.seconds) for each in run.loads]
    muted = (run.muted_s[: len(told)] / runs.seconds).tolist()
    shares = list(zip(runs.stage.counters, told, muted, strict=False))
    assert [share for share in shares if share[1] > share[2] + 0.02] == []
    assert [share for share in shares if share[0].word == "produce" and share[1] < share[2] - 0.02] == []


def test_whatif_predicts_throttle_that_proposed_quotas_cause(runs: Runs) -> None:
    predicted = runs.of_free.whatif(runs.stage.quotas(runs.proposed.limits), runs.stage.counters)
    measured = runs.proposed
    shown = list(zip(runs.stage.counters, predicted.throttled_s, measured.muted_s, strict=True))
    assert predicted.throttled_s == pytest.approx(measured.muted_s, abs=SHARE_TOLERANCE * runs.seconds), shown
    assert predicted.sent_bytes == pytest.approx(measured.recording.sent_bytes.sum(axis=0), rel=BYTES_TOLERANCE)
    assert [verdict == "yes" for verdict in predicted.verdicts] == (measured.muted_s > 0).tolist()
    assert predicted.least_s.tolist() == predicted.most_s.tolist() == predicted.throttled_s.tolist()


def test_clients_with_quota_out_of_reach_are_never_throttled(runs: Runs) -> None:
    assert not runs.free.muted_s.any()


def test_whatif_bounds_hold_for_records_of_throttled_clients(runs: Runs) -> None:
    """Recorded under the proposed quotas, asked of other ones: lower for some, higher for others."""
    for asked in (runs.free, runs.recommended):
        found = runs.of_proposed.whatif(runs.stage.quotas(asked.limits), runs.stage.counters)
        slack_s = np.where(found.least_s == found.most_s, SHARE_TOLERANCE * runs.seconds, 0)
        assert (found.least_s - slack_s <= asked.muted_s).all(), (found, asked.muted_s)
        assert (asked.muted_s <= found.most_s + slack_s).all(), (found, asked.muted_s)


def test_recommended_quotas_meet_their_target(runs: Runs) -> None:
    """Who was seen for less than a minute got none."""
    sized = set()
    for counter, limit, sent in zip(runs.stage.counters, runs.recommended.limits, runs.recommended.loads, strict=False):
        if limit < OUT_OF_REACH:
            sized.add(counter.client_id)
            mine_ms = [answer.throttle_ms for answers in sent.connections for answer in answers]
            assert np.quantile(mine_ms, 0.99) < TARGET_S * 1000, counter
    assert sized >= SIZED


def test_whatif_below_recommended_quota_predicts_throttle_over_target(runs: Runs) -> None:
    """A tenth below what is needed; a client has one quota for all brokers, and the worst of them decides."""
    scarce = np.where(runs.recommended.limits < OUT_OF_REACH, runs.recommended.limits * 0.9 / SPARE, OUT_OF_REACH)
    predicted = runs.of_free.whatif(runs.stage.quotas(scarce), runs.stage.counters)
    longest_s = dict.fromkeys(SIZED, 0.0)
    for counter, throttled_s in zip(runs.stage.counters, predicted.throttled_s.tolist(), strict=True):
        if counter.client_id in longest_s:
            longest_s[counter.client_id] = max(longest_s[counter.client_id], throttled_s)
    assert min(longest_s.values()) >= TARGET_S, longest_s
