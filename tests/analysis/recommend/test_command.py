"""``sluice analyze recommend`` as it is called: from files to files."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from analysis.cli import analyze
from quotas.entities import Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.stores.file import load
from tests.analysis.golden import warehouse_of
from tests.analysis.records import Document, document, row

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
SECONDS = 120
TARGET = "throttled share < 0.1 %"


def recommend(warehouse: str, *arguments: str, target: str = TARGET) -> Result:
    return CliRunner().invoke(analyze, ["recommend", "--warehouse", warehouse, "--target", target, *arguments])


def producing(user: str, client_id: str, kilobytes: int, **columns: Any) -> dict[str, Any]:
    return row(user, client_id, produce_bytes=kilobytes * 1000, produce_requests=10, connections=1, **columns)


def documents() -> list[Document]:
    """Each produces evenly."""
    made = []
    for second in range(SECONDS):
        rows = [
            producing("alice", "web", 300),
            producing("bob", "web", 200),
            producing("eve", "c-1", 400),
            producing("eve", "c-2", 300),
            producing("eve", "job-1", 500),
            producing("eve", "job-2", 100),
        ]
        made.append(document(second, rows))
    return made


SHARED = """\
groups:
  tenant-a: [alice, bob]
quotas:
  - {entity: {user-group: tenant-a}, producer_byte_rate: 9MB, controller_mutation_rate: 1000}
  - {entity: {client-id: {prefix: c}}, producer_byte_rate: 9MB}
  - {entity: {client-id: {prefix: job}}, producer_byte_rate: 9MB, shared: false}
"""


def test_group_and_prefix_quotas_are_sized_by_their_members(spark: SparkSession, tmp_path: Path) -> None:
    """All of a group together, and of a shared prefix; of one that is not shared, the client-id that needs most."""
    warehouse = warehouse_of(spark, documents(), tmp_path / "warehouse")
    present, made = tmp_path / "quotas.yaml", tmp_path / "made.yaml"
    present.write_text(SHARED)
    arguments = ("--quotas", str(present), "--out", str(made), "--accept-low-confidence", "--headroom", "0")
    ran = recommend(warehouse, *arguments)
    assert ran.exit_code == 0, ran.output
    assert "3 to change, 1 left as they are" in ran.stderr
    assert "x user-group=tenant-a controller_mutation_rate 1000: controller_mutation_rate is not replayed" in ran.stderr
    limits = load(made).policy.limits
    tenant = limits[Entity(Group("tenant-a"))]
    assert tenant[PRODUCE] == pytest.approx(500_000, rel=0.05)
    assert limits[Entity(client_id=Prefix("c"))][PRODUCE] == pytest.approx(700_000, rel=0.05)
    assert limits[Entity(client_id=Prefix("job"))][PRODUCE] == pytest.approx(500_000, rel=0.05)
