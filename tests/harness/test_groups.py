from typing import Any

import pytest

from tests.harness.groups import GroupRun

LIMIT = 100


def assigned(at_s: float, member: int, *partitions: int, event: str = "assigned") -> dict[str, Any]:
    return {"event": event, "at_s": at_s, "member": member, "partitions": list(partitions)}


def ran(*changes: dict[str, Any], stderr: str = "", seconds: int = 40) -> GroupRun:
    """Two members, two partitions, and just the quota from the first second on."""
    progress = [
        {"event": "progress", "at_s": 100.0 + second, "bytes": LIMIT * second, "useful": [LIMIT * second // 2, 0]}
        for second in range(seconds)
    ]
    closing = {"event": "closing", "at_s": 100.0 + seconds, "disconnects": 0, "timeouts": 0, "useful": [10, 30]}
    events = sorted([*progress, *changes, closing], key=lambda event: event["at_s"])
    return GroupRun(LIMIT, partitions=2, members=2, events=events, stderr=stderr)


def test_group_is_settled_when_every_partition_has_its_member() -> None:
    both = (assigned(101, 0, 0, 1), assigned(103, 0, 1, event="revoked"), assigned(104, 1, 1))
    run = ran(*both)
    assert run.settled_s == 104
    assert run.rebalances == 0
    assert run.rate(2) == pytest.approx(1.0, rel=0.01)


def test_assignment_changes_after_settling_count_as_rebalances() -> None:
    run = ran(
        assigned(101, 0, 0),
        assigned(101, 1, 1),
        assigned(110, 1, event="assigned"),
        assigned(120, 1, 1, event="revoked"),
        assigned(121, 1, 1),
        assigned(141, 0, 0, event="revoked"),
    )
    assert run.rebalances == 2


def test_group_that_never_settles_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 of 2 partitions"):
        _ = ran(assigned(101, 0, 0)).settled_s


def test_troubles_list_reported_errors_and_time_outs() -> None:
    """Java's settings are in its log too, and are none."""
    trouble = {"event": "trouble", "at_s": 110.0, "text": "gone", "member": 0}
    run = ran(trouble, stderr="request.timeout.ms = 30000\nCancelled in-flight request due to request timeout.")
    assert run.troubles == ["gone", "1 lines of time-outs"]


def test_rate_of_first_ten_seconds_starts_with_first_bytes() -> None:
    """From one report after the first bytes to the last within ten seconds."""
    assert ran().first == pytest.approx(5.0)


def test_member_parts_are_relative_to_a_fair_share() -> None:
    assert ran().parts == (0.5, 1.5)
