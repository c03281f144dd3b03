"""The last changes of quotas: whose they were, in little memory, and each told once."""

import json
from pathlib import Path

import pytest

from proxy.control.change_log import KEPT
from proxy.control.quotas import QuotasInForce
from quotas.engine import Engine
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Altered, Change
from quotas.stores.base import Loaded
from quotas.stores.file_store import FileStore

pytestmark = pytest.mark.asyncio

RATE = QuotaKind.PRODUCER_BYTE_RATE
QUOTAS = """\
quotas:
  - {entity: {user: alice}, producer_byte_rate: 1MiB}
  - {entity: {user: bob}, producer_byte_rate: 1MiB}
"""
MIB = 2.0**20


def alteration(limit: float | None, user: str = "alice", who: str = "admin") -> Alteration:
    return Alteration([Change({"user": user}, [(RATE.value, limit)])], who, peer="10.0.0.9:5", client_id="tool")


async def in_force(folder: Path, *, enabled: bool = True) -> QuotasInForce:
    engine = Engine(Policy())

    async def apply(policy: Policy) -> None:
        engine.apply(policy, 0)

    path = folder / "quotas.yaml"
    path.write_text(QUOTAS)
    quotas = QuotasInForce(FileStore(path), apply, enabled=enabled)
    assert await quotas.load()
    return quotas


def told(quotas: QuotasInForce) -> list[tuple[str, str, object, object]]:
    """Who, whose, old and new; the first one first."""
    return [(each["who"], each["quota"], each["old"], each["new"]) for each in reversed(quotas.changes.last())]


async def test_change_log_ignores_start_and_names_file_for_edit(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    quotas = await in_force(tmp_path, enabled=False)
    assert told(quotas) == []
    path.write_text(QUOTAS.replace("bob}, producer_byte_rate: 1MiB", "bob}, producer_byte_rate: 2MiB"))
    await quotas.load()
    await quotas.load()
    assert told(quotas) == [("file", "user=bob", MIB, 2 * MIB)]
    assert quotas.changes.counts["edited"] == 1
    (change,) = quotas.changes.last()
    assert change.keys() == {"at", "who", "store", "quota", "kind", "old", "new"}


async def test_change_log_names_admin_for_alter_and_file_for_edit(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    quotas = await in_force(tmp_path)
    path.write_text(QUOTAS.replace("1MiB", "2MiB"))  # nobody has looked at it yet
    await quotas.alter(alteration(3 * MIB))
    assert told(quotas) == [
        ("admin", "user=alice", 2 * MIB, 3 * MIB),
        ("file", "user=alice", MIB, 2 * MIB),
        ("file", "user=bob", MIB, 2 * MIB),
    ]


async def test_altered_quota_is_logged_once_when_first_load_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quotas.yaml"
    quotas = await in_force(tmp_path)
    read = FileStore.load

    def broken(store: FileStore, now_ms: int) -> Loaded:
        path.write_text("quotas: 5\n")
        return read(store, now_ms)

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "load", broken)
        await quotas.alter(alteration(3 * MIB))
    assert quotas.policy.limits[Entity("alice")][RATE] == MIB
    path.write_text(QUOTAS.replace("alice}, producer_byte_rate: 1MiB", "alice}, producer_byte_rate: 3MiB"))
    await quotas.load()
    assert quotas.policy.limits[Entity("alice")][RATE] == 3 * MIB
    assert told(quotas) == [("admin", "user=alice", MIB, 3 * MIB)]


async def test_memory_and_texts_are_bounded_and_infinity_is_json(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    quotas = await in_force(tmp_path)
    name = "n" * 1000
    many = "".join(f"  - {{entity: {{user: {name}{n}}}, request_percentage: 5}}\n" for n in range(3 * KEPT))
    path.write_text(QUOTAS + many)
    await quotas.load()
    assert (len(told(quotas)), quotas.changes.counts["edited"]) == (KEPT, 3 * KEPT)
    assert len(json.dumps(quotas.changes.last())) < KEPT * 400
    await quotas.alter(alteration(MIB, name, name))
    assert (len(told(quotas)), len(quotas.changes.last()[0]["who"])) == (KEPT, 128)
    quotas.changes.tell([Altered(Entity("alice"), QuotaKind.REQUEST_PERCENTAGE, None, float("inf"))], None)
    assert json.loads(json.dumps(quotas.changes.last()[0], allow_nan=False))["new"] == "Infinity"
