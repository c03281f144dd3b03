"""What the log says of a reload: what each quota was and is."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.control.quota_file import QuotaFile
from proxy.edge.stats import Stats
from quotas.engine import Engine
from quotas.policy import Policy

pytestmark = pytest.mark.asyncio

OLD = """\
quotas:
  - {entity: {client-id: app}, producer_byte_rate: 1MiB, consumer_byte_rate: 5MiB}
  - {entity: {user: alice}, producer_byte_rate: 7MiB}
"""


async def changes(folder: Path, old: str, new: str, *, enabled: bool = True) -> list[Any]:
    path = folder / "quotas.yaml"
    path.write_text(old)
    quotas = QuotaFile(path, Engine(Policy()), Stats(), enabled=enabled)
    with capture_logs() as logs:
        assert await quotas.load()
        assert [line["event"] for line in logs] == ["quotas in force"]
        path.write_text(new)
        await quotas.reload()
    return [line for line in logs if line["event"].startswith(("quota changed", "quotas changed"))]


async def test_each_quota_that_changed_is_told_with_what_it_was_and_is(tmp_path: Path) -> None:
    new = OLD.replace("1MiB", "2MiB").replace("user: alice", "user: {default: true}")
    lines = await changes(tmp_path, OLD, new)
    assert [(line["quota"], line["kind"], line["old"], line["new"]) for line in lines] == [
        ("client-id=app", "producer_byte_rate", 1 << 20, 2 << 20),
        ("user=alice", "producer_byte_rate", 7 << 20, None),
        ("user=<default>", "producer_byte_rate", None, 7 << 20),
    ]


async def test_a_great_many_are_a_bounded_number_of_lines_and_names_are_cut(tmp_path: Path) -> None:
    name = "n" * 10_000
    many = "".join(f"  - {{entity: {{client-id: {name}{n}}}, producer_byte_rate: 5MiB}}\n" for n in range(500))
    lines = await changes(tmp_path, OLD, OLD + many)
    assert (len(lines), lines[-1]["further"]) == (21, 480)
    assert max(len(str(line)) for line in lines) < 400
    assert len({line.get("quota") for line in lines}) == 21


async def test_what_did_not_change_or_is_not_in_force_is_not_told(tmp_path: Path) -> None:
    assert await changes(tmp_path, OLD, "# as before\n" + OLD) == []
    assert await changes(tmp_path, OLD, OLD.replace("5MiB", "6MiB"), enabled=False) == []


async def test_of_many_loads_at_once_the_last_one_read_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(OLD)
    quotas = QuotaFile(path, Engine(Policy()), Stats(), enabled=True)
    loads = [asyncio.ensure_future(quotas.load()) for _ in range(20)]
    await asyncio.wait(loads, return_when=asyncio.FIRST_COMPLETED)
    (tmp_path / "next.yaml").write_text("quotas: []\n")
    (tmp_path / "next.yaml").replace(path)  # a load under way must not find half of it
    loads.append(asyncio.ensure_future(quotas.load()))
    assert all(await asyncio.gather(*loads))
    assert quotas.policy.limits == {}
