"""What is said of a quota file at each load: mistakes, and never without end; what becomes of one that is broken."""

from pathlib import Path

import pytest
import structlog

from tests.proxy.control.test_quotas import in_force

pytestmark = pytest.mark.asyncio


async def test_doubts_are_logged_and_the_quotas_are_in_force(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(
        "quotas:\n"
        + "".join(f"  - {{entity: {{client-id: team-{number}*}}, producer_byte_rate: 1MB}}\n" for number in range(30))
    )
    quotas = in_force(path)
    with structlog.testing.capture_logs() as logged:
        assert await quotas.load()
    warned = [entry for entry in logged if entry["log_level"] == "warning"]
    assert len(warned) == 21
    assert warned[0]["problem"].startswith(f"{path}:2:26: quotas[0].entity.client-id: 'team-0*' is a name as it stands")
    assert warned[20]["further_problems"] == 10
    assert len(quotas.policy.limits) == 30


async def test_a_broken_file_says_what_becomes_of_it(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    quotas = in_force(path)
    with structlog.testing.capture_logs() as logged:
        assert not await quotas.load()
        path.write_text("quotas: []\n")
        assert await quotas.load()
        path.write_text("")
        assert not await quotas.load()
    assert [entry["event"] for entry in logged if entry["log_level"] == "error"] == [
        "quotas not loaded, the proxy does not start without them",
        "quotas not loaded, the old ones stay in force",
    ]
