"""Who connected, in usage records: every attempt once, few addresses by name, and who was refused before all others."""

import json
from typing import Any

from proxy.usage.addresses import COLUMNS, MOST_COUNTED, Addresses
from proxy.usage.documents import Documents
from proxy.usage.meters import Meters
from proxy.usage.records import MAX_ROWS, Recorder
from quotas.engine import Engine
from quotas.entities import Default, Entity
from quotas.names import FOLDED
from quotas.policy import Policy

BY_DEFAULT = Entity(ip=Default.DEFAULT)
NAMED = Entity(ip="10.0.0.9")


def taken(addresses: Addresses, now_ms: int = 1000) -> list[dict[str, Any]]:
    recorder = Recorder(Meters(10), [], Engine(Policy()), addresses)
    documents = Documents({}, lambda: (0, 0))
    rows = []
    for page in recorder.take(now_ms):
        if page is not None:
            columns = json.loads(documents.document(page, 0, 1000).value)["rows"]
            found = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            assert len(found) <= MAX_ROWS
            rows += found
    return rows


def figures(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in COLUMNS)


def test_a_row_says_what_came_and_what_of_it_was_refused() -> None:
    addresses = Addresses(10)
    for _ in range(3):
        addresses.count("PLAIN", "10.0.0.5", 1, 100, 2.0, BY_DEFAULT)
    addresses.count("PLAIN", "10.0.0.5", 1, 400, 2.0, BY_DEFAULT, throttle_ms=300)
    addresses.count("TLS", "10.0.0.5", 1, 400)
    plain, tls = sorted(taken(addresses), key=lambda row: str(row["listener"]))
    assert figures(plain) == (4, 2.0, "ip=<default>", 1, 300, 300, 0, 0)
    assert figures(tls) == (1, None, None, 0, 0, 0, 0, 0)
    assert (plain["listener"], plain["ip"], plain["broker"]) == ("PLAIN", "10.0.0.5", 1)
    assert plain["user"] is None
    assert plain["client_id"] is None
    assert "exempt" not in plain
    assert taken(addresses) == []


def test_throttle_across_intervals_is_muted_time_of_each() -> None:
    addresses = Addresses(10)
    addresses.count("PLAIN", "10.0.0.5", 1, 900, 2.0, BY_DEFAULT, throttle_ms=500)
    [first], [second] = taken(addresses, 1000), taken(addresses, 2000)
    assert figures(first) == (1, 2.0, "ip=<default>", 1, 500, 100, 0, 0)
    assert figures(second) == (0, 2.0, "ip=<default>", 0, 0, 400, 0, 0)
    assert taken(addresses, 3000) == []


def test_the_named_the_refused_and_the_busiest_have_rows_and_the_sums_are_exact() -> None:
    addresses = Addresses(3)
    for number in range(50):
        for _ in range(number + 1):
            addresses.count("PLAIN", f"10.0.1.{number}", 1, 100)
    addresses.count("PLAIN", "10.0.0.7", 1, 100, 2.0, BY_DEFAULT, throttle_ms=10)
    addresses.count("PLAIN", "10.0.0.9", 1, 100, 2.0, NAMED)
    found = {row["ip"]: row for row in taken(addresses)}
    assert found.keys() == {"10.0.0.9", "10.0.0.7", "10.0.1.49", FOLDED}
    assert sum(row["connection_attempts"] for row in found.values()) == sum(range(51)) + 2
    assert found[FOLDED]["connection_limit"] is None


def test_no_address_is_in_any_record_if_one_likes() -> None:
    addresses = Addresses(0)
    addresses.count("PLAIN", "10.0.0.9", 1, 100, 2.0, NAMED, throttle_ms=10)
    addresses.count("PLAIN", "10.0.0.8", 1, 100)
    [row] = taken(addresses)
    assert (row["ip"], *figures(row)) == (FOLDED, 2, None, None, 1, 10, 10, 0, 0)


def test_strangers_have_no_place_without_end_and_a_named_address_always_has_one() -> None:
    addresses = Addresses(10**6)
    for number in range(MOST_COUNTED + 500):
        addresses.count("PLAIN", f"2001:db8::{number:x}", 1, 100)
    addresses.count("PLAIN", "10.0.0.9", 1, 100, 2.0, NAMED)
    found = taken(addresses)
    assert sum(row["connection_attempts"] for row in found) == MOST_COUNTED + 501
    of = {row["ip"]: row["connection_attempts"] for row in found}
    assert of["10.0.0.9"] == 1
    assert of[FOLDED] == 500
    assert len(of) == MOST_COUNTED + 2


def test_the_exempt_are_told_apart_and_waits_are_of_their_listener() -> None:
    addresses = Addresses(10)
    addresses.count("PLAIN", "10.0.0.5", 1, 100, exempt=True)
    addresses.count_wait("PLAIN", 40)
    addresses.count_wait("PLAIN", 60)
    exempt, waits = taken(addresses)
    assert exempt["exempt"] is True
    assert (waits["ip"], *figures(waits)) == (None, 0, None, None, 0, 0, 0, 2, 100)
    assert waits["exempt"] is False
