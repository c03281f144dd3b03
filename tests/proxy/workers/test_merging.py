"""A client that is at brokers of two workers has one row."""

from array import array
from math import isnan, nan

import pytest

from proxy.state.answers import as_json
from proxy.state.rows import ClientRow, UsageRow
from proxy.usage.history import Series
from proxy.workers.merging import MERGED


def row(worker: int, user: str = "alice", ratio: float | None = 0.5, **more: object) -> ClientRow:
    kind = None if ratio is None else "producer_byte_rate"
    quota = kind, worker, f"user={user}", 5.0, 10.0, ratio
    found = ClientRow("PLAIN", user, "app", 2, False, 100.0, 10.0, *quota, 0.1, worker)
    return found._replace(**more)  # type: ignore[arg-type]


def test_rates_and_connections_are_added_up() -> None:
    (merged,) = MERGED["clients"]([row(0), row(1)])
    assert (merged.connections, merged.bytes_in_per_s, merged.bytes_out_per_s, merged.worker) == (4, 200, 20, None)


def test_client_throttled_at_one_worker_is_throttled() -> None:
    rows = [row(0, throttled_share_1m=0.9), row(1, is_throttled=True)]
    (merged,) = MERGED["clients"](rows)
    assert merged.is_throttled
    assert merged.throttled_share_1m == 0.9


@pytest.mark.parametrize(("ratios", "broker"), [((0.2, 1.5), 1), ((1.5, 0.2), 0), ((None, 0.2), 1), ((0.0, None), 0)])
def test_quota_shown_is_the_one_nearest_to_its_limit(ratios: tuple[float | None, float | None], broker: int) -> None:
    (merged,) = MERGED["clients"]([row(number, ratio=ratio) for number, ratio in enumerate(ratios)])
    assert (merged.broker, merged.ratio) == (broker, ratios[broker])


def test_other_clients_and_listeners_keep_their_rows_and_worker() -> None:
    rows = [row(0), row(1, "bob"), row(1, listener="SSL"), row(1, client_id=None)]
    assert MERGED["clients"](rows) == rows


def hour(worker: int, at_s: list[float], ratios: list[float]) -> UsageRow:
    columns = (array("f", each) for each in ([60.0] * len(at_s), [6.0] * len(at_s), ratios, [0.5] * len(at_s)))
    return UsageRow("alice", "app", "PLAIN", 66.0, Series(at_s, *columns), worker)


def test_last_hours_are_added_up_by_minutes() -> None:
    rows = [hour(0, [600.2, 660.2], [nan, 0.5]), hour(1, [659.9, 719.9, 779.9], [0.25, nan, nan])]
    (merged,) = MERGED["usage"](rows)
    assert (merged.bytes_per_s, merged.worker) == (132, None)
    at_s, bytes_in, bytes_out, ratios, shares = merged.points
    assert at_s == [600.2, 660.2, 779.9]
    assert (list(bytes_in), list(bytes_out), list(shares)) == ([120, 120, 60], [12, 12, 6], [0.5] * 3)
    assert list(ratios)[:2] == [0.25, 0.5]
    assert isnan(ratios[2])
    assert len(as_json(merged)["points"]) == 3


def test_hours_without_points_are_merged() -> None:
    (merged,) = MERGED["usage"]([hour(0, [], []), hour(1, [], [])])
    assert as_json(merged)["points"] == []
