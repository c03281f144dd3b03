"""Quotas kept in a file and applied to a real ZooKeeper, beside somebody who changes them there as a broker does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from tests.harness.zookeeper import ZooKeeper
from tests.proxy.manage.run import quotas
from tests.quotas.stores.zookeeper import ZooKeeperHarness

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(120)]

RATE = QuotaKind.PRODUCER_BYTE_RATE
CHROOT = "/applied"


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperHarness]:
    with ZooKeeper() as server:
        harness = ZooKeeperHarness(server, CHROOT)
        yield harness
        harness.close()


def test_quotas_in_zookeeper_are_applied_conflict_and_roll_back(
    zookeeper: ZooKeeperHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    desired = Path("quotas.yaml")
    target = ("--zookeeper", f"{zookeeper.server.connect}{CHROOT}", "--yes")
    eve = {Entity("eve"): {RATE: 7.0}}
    zookeeper.put(eve)

    def apply(*arguments: str) -> int:
        return quotas("apply", desired, *target, *arguments).exit_code

    def live() -> dict[Entity, dict[QuotaKind, float]]:
        return {entity: dict(limits) for entity, limits in zookeeper.store.load(0).policy.limits.items()}

    desired.write_text(
        "quotas:\n"
        "  - {entity: {user: alice/ä}, producer_byte_rate: 1024}\n"
        "  - {entity: {user: {default: true}, client-id: app}, request_percentage: 12.5}\n"
    )
    assert apply() == 0
    alice, app = Entity("alice/ä"), Entity(Default.DEFAULT, "app")
    assert live() == {**eve, alice: {RATE: 1024.0}, app: {QuotaKind.REQUEST_PERCENTAGE: 12.5}}
    assert apply() == 0

    zookeeper.put({**eve, alice: {RATE: 99.0}})
    assert apply() == 1
    assert live() == {**eve, alice: {RATE: 99.0}}
    assert apply("--force") == 0
    assert live()[alice] == {RATE: 1024.0}

    zookeeper.write("/config/users/alice%2F%C3%A4", b"not json")
    for line in (["diff", desired], ["apply", desired, "--force"]):
        done = quotas(*line, *target[: 2 if line[0] == "diff" else 3])
        assert done.exit_code == 2
        assert "/config/users/alice%2F%C3%A4: is not JSON; it is skipped: fix or delete it" in done.output
    done = quotas("export", *target[:2], "--strict")
    assert (done.exit_code, done.stdout) == (1, "")
    assert zookeeper.client.get(f"{CHROOT}/config/users/alice%2F%C3%A4")[0] == b"not json"
    zookeeper.put({**eve, alice: {RATE: 1024.0}, app: {QuotaKind.REQUEST_PERCENTAGE: 12.5}})

    desired.write_text("quotas: []\n")
    assert apply() == 0
    assert live() == eve
