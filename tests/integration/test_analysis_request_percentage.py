"""What-if tells the truth of request_percentage: predicted from one run, met in another one, of the same demand.

How long a request takes is no number of its own: it differs from run to run, by what else the machine does. So the
quota that is proposed is half of what the first run took, and the second one is judged by shares.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import produce_request
from tests.harness.rows import usage
from tests.harness.sluice import SluiceProcess
from tests.integration.analyzed import Analyzed, rows_of
from tests.integration.conftest import fresh_name
from tests.integration.paced import Client, run_paced

pytestmark = [pytest.mark.matrix, pytest.mark.spark, pytest.mark.timeout(900)]

SECONDS: Final = 30
PER_S: Final = 200
BYTES: Final = 300
OUT_OF_REACH: Final = 100_000.0
TOLERANCE: Final = 0.15
"""Of what passes: docs/analysis.md."""
_MET: Final = """
    WITH mine AS (SELECT * FROM {usage} WHERE client_id = 'busy'),
         first_row AS (SELECT min(time) AS first FROM mine)
    SELECT sum(request_thread_us) / 1e4 AS percent_s, sum(request_muted_ms) / 1e3 AS muted_s
    FROM mine, first_row WHERE epoch_ms(time) < epoch_ms(first_row.first) + CAST(? AS BIGINT) * 1000
"""


@dataclass(frozen=True, slots=True)
class Met:
    """What one run took in the time of the demand, and for how long it was held."""

    percent_s: float
    muted_s: float


def run(cluster: KafkaCluster, folder: Path, percent: float) -> tuple[Analyzed, Met]:
    """Let the demand meet a quota; all of it is sent, however late."""
    topic = fresh_name("busy")
    node_id = cluster.node_ids[0]
    cluster.create_topic(topic, leader=node_id)
    request = produce_request(topic, "busy", BYTES)
    client = Client("busy", node_id, request, len(request) - 4, 4, (float(PER_S * (len(request) - 4)),) * SECONDS)
    quotas = f"quotas:\n  - {{entity: {{client-id: busy}}, request_percentage: {percent}}}\n"
    settings = {"usage": {"files": {"directory": str(folder / "usage")}, "interval": "1s"}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings) as sluice:
        [load] = run_paced([client], sluice.broker_addresses, time.time() + 1, SECONDS)
        assert load.errors == []
        assert sluice.stop() == 0
    analyzed = Analyzed.of_files(folder / "usage", folder)
    [met] = rows_of(_MET.format(usage=usage(folder / "warehouse")), str(SECONDS))
    return analyzed, Met(float(met["percent_s"]), float(met["muted_s"]))


def test_whatif_predicts_throttle_of_request_percentage(cluster: KafkaCluster, tmp_path: Path) -> None:
    of_free, free = run(cluster, tmp_path / "free", OUT_OF_REACH)
    assert free.muted_s < SECONDS / 100
    percent = round(free.percent_s / SECONDS / 2, 2)
    proposed = f"quotas:\n  - {{entity: {{client-id: busy}}, request_percentage: {percent}}}\n"
    [unit] = [
        each for each in of_free.units(proposed) if each["kind"] == "request_percentage" and each["client_id"] == "busy"
    ]
    _, held = run(cluster, tmp_path / "held", percent)
    print(f"predicted {unit['sent_bytes']:.1f} percent-s, {unit['throttled_s']:.1f} s; met {held}; limit {percent:.2f}")
    assert unit["verdict"] == "yes"
    assert held.percent_s == pytest.approx(unit["sent_bytes"], rel=TOLERANCE)
    # Whole seconds are predicted in which anything is held; these throttles are short, and have gaps between them.
    assert 0.7 * unit["throttled_s"] <= held.muted_s <= unit["throttled_s"] + TOLERANCE * SECONDS
