"""Quotas in force: what the log says of a reload, what each quota was and is; changing them; how stale they are."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from config.problems import Problem
from proxy.cli import cli
from proxy.control import quotas as control
from proxy.control.quotas import QuotasInForce
from proxy.runtime.clock import now_ms
from quotas.engine import Engine
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Change, Outcome
from quotas.stores.base import Loaded, UnreadableError
from quotas.stores.file_store import FileStore

pytestmark = pytest.mark.asyncio

OLD = """\
quotas:
  - {entity: {client-id: app}, producer_byte_rate: 1MiB, consumer_byte_rate: 5MiB}
  - {entity: {user: alice}, producer_byte_rate: 7MiB}
"""


def in_force(path: Path, *, enabled: bool = True, store: FileStore | None = None) -> QuotasInForce:
    engine = Engine(Policy())

    async def apply(policy: Policy) -> None:
        engine.apply(policy, now_ms())

    return QuotasInForce(store or FileStore(path), apply, enabled=enabled)


async def changes(folder: Path, old: str, new: str, *, enabled: bool = True) -> list[Any]:
    path = folder / "quotas.yaml"
    path.write_text(old)
    quotas = in_force(path, enabled=enabled)
    with capture_logs() as logs:
        assert await quotas.load()
        assert [line["event"] for line in logs] == ["quotas in force"]
        path.write_text(new)
        await quotas.load()
    return [line for line in logs if line["event"].startswith(("quota changed", "quotas changed"))]


async def test_each_quota_that_changed_is_told_with_what_it_was_and_is(tmp_path: Path) -> None:
    new = OLD.replace("1MiB", "2MiB").replace("user: alice", "user: {default: true}")
    lines = await changes(tmp_path, OLD, new)
    assert [(line["quota"], line["kind"], line["old"], line["new"]) for line in lines] == [
        ("client-id=app", "producer_byte_rate", 1 << 20, 2 << 20),
        ("user=alice", "producer_byte_rate", 7 << 20, None),
        ("user=<default>", "producer_byte_rate", None, 7 << 20),
    ]


@pytest.mark.long
async def test_a_great_many_are_a_bounded_number_of_lines_and_names_are_cut(tmp_path: Path) -> None:
    name = "n" * 10_000
    many = "".join(f"  - {{entity: {{client-id: {name}{n}}}, producer_byte_rate: 5MiB}}\n" for n in range(500))
    lines = await changes(tmp_path, OLD, OLD + many)
    assert (len(lines), lines[-1]["further"]) == (21, 480)
    assert max(len(str(line)) for line in lines) < 400
    assert len({line.get("quota") for line in lines}) == 21


async def test_reload_without_change_or_when_disabled_logs_no_change(tmp_path: Path) -> None:
    assert await changes(tmp_path, OLD, "# as before\n" + OLD) == []
    assert await changes(tmp_path, OLD, OLD.replace("5MiB", "6MiB"), enabled=False) == []


async def test_concurrent_quota_loads_leave_last_read_file_in_force(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    quotas = in_force(path)
    loads = [asyncio.ensure_future(quotas.load()) for _ in range(20)]
    await asyncio.wait(loads, return_when=asyncio.FIRST_COMPLETED)
    (tmp_path / "next.yaml").write_text("quotas: []\n")
    (tmp_path / "next.yaml").replace(path)  # a load under way must not find half of it
    loads.append(asyncio.ensure_future(quotas.load()))
    assert all(await asyncio.gather(*loads))
    assert quotas.policy.limits == {}


async def test_altered_quota_is_in_force_at_once_and_logged(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    quotas = in_force(path)
    assert await quotas.load()
    change = Change({"user": "alice"}, [("producer_byte_rate", 2.0**21)])
    with capture_logs() as logs:
        dry = await quotas.alter(Alteration([change], "User:admin", validate_only=True))
        assert (logs, path.read_text()) == ([], OLD)
        assert await quotas.alter(Alteration([change], "User:admin")) == dry
        assert await quotas.alter(Alteration([change], "User:admin")) == [Outcome()]
    assert quotas.policy.limits[Entity(user="alice")] == {QuotaKind.PRODUCER_BYTE_RATE: 2 << 20}
    assert logs[0]["who"] == "User:admin"
    assert [(line["event"], line.get("old"), line.get("new")) for line in logs] == [
        ("quotas altered", None, None),
        ("quota changed", 7 << 20, 2 << 20),
        ("quotas in force", None, None),
    ]


async def test_staleness_grows_while_quota_loads_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    quotas = in_force(path)
    at_ms = 1_000_000
    monkeypatch.setattr(control, "now_ms", lambda: at_ms)
    assert await quotas.load()
    path.write_text("quotas: 5\n")
    assert not await quotas.load()
    at_ms += 1500
    assert quotas.staleness_s() == 1.5
    assert quotas.loads == {"ok": 1, "failed": 1}
    assert str(quotas.error).startswith(f"{path}:1:9: quotas: must be a list")
    path.write_text(OLD)
    assert await quotas.load()
    assert quotas.staleness_s() == 0.0
    assert str(quotas.error) == "None"


@pytest.mark.parametrize(
    ("policy", "meanwhile"), [("refuse", "no client is accepted without them"), ("unlimited", "no client is limited")]
)
async def test_quotas_failing_after_start_without_store_keep_proxy_running(
    tmp_path: Path, policy: str, meanwhile: str
) -> None:
    """ZooKeeper comes, and its brokers have not made their tree yet."""
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    quotas = in_force(path, store=_Scripted(path, away=[True, False, False]))
    with capture_logs() as logs:
        assert await quotas.start(policy)
        assert not await quotas.load()
        assert not await quotas.load()
    told = [line["event"] for line in logs]
    assert [meanwhile in event for event in told] == [True] * len(told)
    assert len(told) == 2


async def test_end_of_quota_store_outage_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    quotas = in_force(path, store=_Scripted(path, away=[]))
    assert await quotas.load()
    for away, event in ((True, "the quota store is back"), (False, "quotas are read again")):
        quotas._store._away = [away, away]  # type: ignore[attr-defined]  # it is _Scripted
        with capture_logs() as logs:
            assert [await quotas.load() for _ in range(4)] == [False, False, True, True]
        assert [line["event"] for line in logs] == [
            "quotas not loaded, the old ones stay in force",
            event,
            "quotas in force",
        ]
        assert logs[1]["unread_s"] >= 0


async def test_change_by_sluice_quotas_is_logged_with_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    try:
        os.setxattr(path, "user.test", b"")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    quotas = in_force(path)
    assert await quotas.load()
    for by, limit in (("alice", "5MiB"), ("bob", "6MiB")):
        monkeypatch.setenv("SLUICE_BY", by)
        command = ["quotas", "alter", "--file", str(path), "user=alice", f"producer_byte_rate={limit}"]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        assert await quotas.load()
        assert quotas.changes.last()[0]["who"] == f"{by} by sluice quotas"
    edited = path.read_text().replace(str(6 << 20), "7MiB").replace("6MiB", "7MiB")
    path.write_text(edited)  # in place, by an editor
    assert await quotas.load()
    assert (quotas.changes.last()[0]["who"], quotas.changes.last()[0]["new"]) == ("file", 7 << 20)


async def test_internal_error_during_load_counts_as_failed_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a text that Python does not take for a number: nothing is loaded, and staleness says so."""
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    at_ms = 1_000_000
    monkeypatch.setattr(control, "now_ms", lambda: at_ms)
    store = FileStore(path)
    quotas = in_force(path, store=store)
    assert await quotas.load()
    known = quotas.policy
    monkeypatch.setattr(store, "_load", lambda: int("9" * 5000))
    for _ in range(2):
        with pytest.raises(ValueError, match="4300"):
            await quotas.load()
        at_ms += 1500
    assert quotas.policy is known
    assert (quotas.staleness_s(), quotas.loads["failed"]) == (3.0, 2)
    assert quotas.error == "quotas: internal error: ValueError; please report it"


async def test_broken_static_quota_file_is_logged_at_start(tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text(OLD)
    (tmp_path / "static.yaml").write_text("quotas: 5\n")
    quotas = in_force(tmp_path / "quotas.yaml")
    with capture_logs() as logs:
        assert await quotas.start("static", FileStore(tmp_path / "static.yaml"))
    [told] = [line for line in logs if line["log_level"] == "error"]
    assert told["event"] == "quotas.static not loaded"
    assert "static.yaml:1:9" in told["problem"]


async def test_quotas_not_loaded_at_start_keep_proxy_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    quotas = in_force(path, store=_Scripted(path, away=[False]))
    with capture_logs() as logs:
        assert not await quotas.start("unlimited")
    assert [line["event"] for line in logs] == ["quotas not loaded, the proxy does not start without them"]


class _Scripted(FileStore):
    """Cannot be read so many times: away, or wrong."""

    def __init__(self, path: Path, *, away: list[bool]) -> None:
        super().__init__(path)
        self._away = away

    def load(self, now_ms: int) -> Loaded:
        if not self._away:
            return super().load(now_ms)
        away = self._away.pop(0)
        raise UnreadableError([Problem("store", 0, 0, "", "is away" if away else "is empty")], away=away)
