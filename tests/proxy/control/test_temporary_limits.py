"""Limits for a time, on top of a quota file."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.control.quotas import QuotasInForce
from proxy.control.temporary_limits import LONGEST_MS, MOST, TemporaryLimits, path_beside
from proxy.runtime.clock import wall_s
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.harness.polling import until
from tests.proxy.control.test_quotas import OLD, in_force

pytestmark = pytest.mark.asyncio

ALICE = Entity("alice")
KIND = QuotaKind.PRODUCER_BYTE_RATE
FETCH = QuotaKind.CONSUMER_BYTE_RATE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_temporary_limit_overrides_quota_file_until_it_expires(path: Path) -> None:
    quotas = in_force(path)
    await quotas.load()
    limits, now = quotas.temporary, 0
    limits._clock = lambda: now
    with capture_logs() as logs:
        await limits.set(ALICE, KIND, 1024.0, 60_000, "admin token", "127.0.0.1")
        assert quotas.policy.limits[ALICE] == {KIND: 1024.0}
        assert quotas.policy.limits[Entity(None, "app")] == {KIND: 1 << 20, FETCH: 5 << 20}
        write(path, OLD.replace("7MiB", "8MiB"))
        await quotas.load()
        assert quotas.policy.limits[ALICE] == {KIND: 1024.0}
        await quotas.enable(False)
        assert quotas.policy.limits == {}
        await quotas.enable(True)
        assert quotas.policy.limits[ALICE] == {KIND: 1024.0}
        now = 59_999
        await limits.end_overdue()
        assert limits.limits
        now = 60_000
        await limits.end_overdue()
        assert quotas.policy.limits[ALICE] == {KIND: 8 << 20}
    told = [(line["old"], line["new"], line["who"], line["store"]) for line in logs if line["event"] == "quota changed"]
    assert told == [
        (7 << 20, 1024.0, "admin token", "temporary"),
        (7 << 20, 8 << 20, "file", "file"),
        (1024.0, 8 << 20, "its end", "temporary"),
    ]
    assert [each["store"] for each in quotas.changes.last()] == ["temporary", "file", "temporary"]


async def test_an_entity_without_a_quota_has_none_again_afterwards(path: Path) -> None:
    quotas = in_force(path)
    await quotas.load()
    pair = Entity("bob", "app")
    await quotas.temporary.set(pair, FETCH, 1.0, 1000, "admin token", "")
    assert quotas.policy.limits[pair] == {FETCH: 1.0}
    assert await quotas.temporary.end(pair, FETCH, "admin token", "")
    assert pair not in quotas.policy.limits
    assert not await quotas.temporary.end(pair, FETCH, "admin token", "")


async def test_a_temporary_limit_ends_while_the_store_is_watched(path: Path) -> None:
    quotas = in_force(path)
    await quotas.load()
    await quotas.temporary.set(ALICE, KIND, 1.0, 1, "admin token", "")

    async def no_alterations() -> int:
        return 0

    quotas.watch(no_alterations)
    await until(lambda: quotas.policy.limits[ALICE] == {KIND: 7 << 20})


async def test_temporary_limits_are_bounded_in_number_and_duration(path: Path) -> None:
    quotas = in_force(path)
    for wrong in (0, LONGEST_MS + 1):
        with pytest.raises(ValueError, match="at most 168h"):
            await quotas.temporary.set(ALICE, KIND, 1.0, wrong, "", "")
    for number in range(MOST):
        await quotas.temporary.set(Entity(f"user-{number}"), KIND, 1.0, 1000, "", "")
    with pytest.raises(ValueError, match="100 temporary limits"):
        await quotas.temporary.set(ALICE, KIND, 1.0, 1000, "", "")
    await quotas.temporary.set(Entity("user-1"), KIND, 2.0, 1000, "", "")
    assert len(quotas.temporary.limits) == MOST


async def test_temporary_limit_is_discarded_when_policy_fails_to_load() -> None:
    async def renew() -> tuple[Policy, Policy]:
        raise OSError

    limits = TemporaryLimits(renew, lambda *_: None)
    with pytest.raises(OSError):  # noqa: PT011
        await limits.set(ALICE, KIND, 1.0, 1000, "", "")
    assert limits.limits == {}


KEPT = (
    '{"limits": [{"user": "a", "client_id": null, "kind": "producer_byte_rate", '
    '"limit": 1.0, "until_s": 9, "who": ""}]}'
)


async def kept_in(path: Path, file: Path) -> QuotasInForce:
    """Return quotas after a start with a file of temporary limits."""
    quotas = in_force(path)
    quotas.temporary.file = file
    await quotas.temporary.restore()
    await quotas.load()
    return quotas


async def test_temporary_limits_survive_a_restart_and_end_at_their_time(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = path_beside(tmp_path / "state" / "brokers.json")
    quotas = await kept_in(path, file)
    await quotas.temporary.set(ALICE, KIND, 1024.0, 60_000, "ops", "127.0.0.1")
    await quotas.temporary.set(Entity("bob", "app"), FETCH, 5.0, 3_600_000, "ops", "127.0.0.1")
    assert (file.name, file.stat().st_mode & 0o777) == ("brokers.limits.json", 0o600)
    again = await kept_in(path, file)
    assert again.policy.limits[ALICE] == {KIND: 1024.0}
    assert again.temporary.limits[ALICE, KIND].who == "ops"
    assert again.temporary.limits[ALICE, KIND].until_s == quotas.temporary.limits[ALICE, KIND].until_s
    monkeypatch.setattr("proxy.control.temporary_limits.wall_s", lambda: wall_s() + 61)
    later = await kept_in(path, file)
    assert list(later.temporary.limits) == [(Entity("bob", "app"), FETCH)]
    await later.temporary.end(Entity("bob", "app"), FETCH, "ops", "")
    assert (await kept_in(path, file)).temporary.limits == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 2, "limits": []}',
        '{"limits": [{"user": null}]}',
        KEPT.replace('"a"', "null"),
        KEPT.replace("producer_byte_rate", "x"),
        KEPT.replace("1.0", "-1"),
    ],
)
async def test_unusable_file_of_limits_is_logged_and_ignored(path: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "limits.json").write_text(content)
    with capture_logs() as logs:
        quotas = await kept_in(path, tmp_path / "limits.json")
    assert quotas.temporary.limits == {}
    assert "file of temporary limits not usable: it is ignored, and rewritten" in [line["event"] for line in logs]


async def test_limits_that_cannot_be_kept_are_in_force_all_the_same(path: Path, tmp_path: Path) -> None:
    (tmp_path / "no folder").write_text("")
    quotas = await kept_in(path, tmp_path / "no folder" / "limits.json")
    with capture_logs() as logs:
        await quotas.temporary.set(ALICE, KIND, 1024.0, 60_000, "ops", "")
    assert quotas.policy.limits[ALICE] == {KIND: 1024.0}
    assert logs[-1]["event"] == "temporary limits not kept: a restart would end them"
