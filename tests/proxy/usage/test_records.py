"""Documents: every row once, however the interval is cut into documents, and with the limits in force."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from config.loader import load_settings
from proxy.usage.accounts import Accounts
from proxy.usage.documents import Document, Documents, same_fields
from proxy.usage.meter import Meter, MeterKey
from proxy.usage.meters import Meters
from proxy.usage.records import COLUMNS, MAX_ROWS, Columns, Recorder
from quotas.engine import Engine
from quotas.entities import Default, Entity, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms

PRODUCER, CONSUMER = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
SETTINGS = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:1"]}
listeners: [{name: PLAIN, bind: "127.0.0.1:2", advertise: a.test, brokers: {"1": "3"}}]
"""
QUOTAS = "quotas: {store: {type: cluster}}\n"


def fields(more: str = QUOTAS) -> dict[str, object]:
    """Return what all documents of a proxy have that is configured so."""
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(SETTINGS + more)
        file.flush()
        return same_fields(load_settings(Path(file.name)), "edge-1")


class Worker:
    def __init__(self, policy: Policy | None = None) -> None:
        self.engine = Engine(policy or Policy())
        self.meters = Meters(10**6)
        self.listener = Accounts(self.meters, self.engine, "PLAIN")
        self.lost = (0, 0)
        self.recorder = Recorder(self.meters, [self.listener], self.engine)
        self.documents = Documents(fields(), dropped=lambda: self.lost)

    def taken(self, now_ms: int, begin_ms: int, interval_ms: int) -> Iterator[Document]:
        for page in self.recorder.take(now_ms):
            if page is not None:
                yield self.documents.document(page, begin_ms, interval_ms)

    def counted(self, broker: int, user: str, client_id: str) -> Meter:
        """Return the meter of a client that nobody is any more, once something has been counted on it."""
        account = self.listener.hold(broker, user, client_id)
        self.listener.give_back(account)
        return account.meter

    def take(self, now_ms: int = 1000) -> list[dict[str, Any]]:
        documents = list(self.taken(now_ms, begin_ms=1_700_000_000_000 + now_ms, interval_ms=1000))
        assert all(isinstance(document, Document) for document in documents)
        parsed: list[dict[str, Any]] = [json.loads(document.value) for document in documents]
        assert [len(each["rows"]["user"]) for each in parsed] == [document.rows for document in documents]
        return parsed


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    columns = document["rows"]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_a_row_has_every_column_and_says_what_was_counted() -> None:
    worker = Worker(
        Policy({Entity(user="alice"): {PRODUCER: 10_240.0}, Entity(client_id=Default.DEFAULT): {CONSUMER: 5.0}})
    )
    meter = worker.counted(1, "alice", "app")
    meter.produce_requests, meter.produce_bytes, meter.other_requests, meter.other_bytes = 9, 52_000, 1, 100
    meter.bytes_out, meter.request_time_ms, meter.connections, meter.connections_opened = 1200, 31, 2, 1
    meter.count_throttle(PRODUCER, 420, now_ms=900)
    [document] = worker.take(now_ms=1000)
    [row] = rows(document)
    assert tuple(row) == COLUMNS
    assert row == {
        "listener": "PLAIN",
        "broker": 1,
        "user": "alice",
        "client_id": "app",
        "bytes_in": 52_000 + 4 * 9 + 100,
        "bytes_out": 1200,
        "requests": 10,
        "request_time_ms": 31,
        "connections": 2,
        "connections_opened": 1,
        "connections_refused": 0,
        "produce_bytes": 52_000,
        "produce_requests": 9,
        "produce_limit": 10_240.0,
        "produce_rule": "user=alice",
        "produce_counter_user": "alice",
        "produce_counter_client_id": None,
        "fetch_bytes": 0,
        "fetch_requests": 0,
        "fetch_limit": 5.0,
        "fetch_rule": "client-id=<default>",
        "fetch_counter_user": None,
        "fetch_counter_client_id": "app",
        "produce_throttled": 1,
        "produce_throttle_ms": 420,
        "produce_muted_ms": 100,
        "fetch_throttled": 0,
        "fetch_throttle_ms": 0,
        "fetch_muted_ms": 0,
    }
    head = {name: value for name, value in document.items() if name not in {"rows", "boot"}}
    assert head == {
        "v": 1,
        "cluster": "demo",
        "instance": "edge-1",
        "seq": 0,
        "time_ms": 1_700_000_001_000,
        "interval_ms": 1000,
        "mode": "enforce",
        "samples": 11,
        "sample_ms": 1000,
        "dropped_documents": 0,
        "dropped_rows": 0,
    }


@pytest.mark.parametrize("clients", [1, MAX_ROWS - 1, MAX_ROWS, MAX_ROWS + 1, 3 * MAX_ROWS + 7])
def test_each_client_has_one_row_and_no_document_too_many(clients: int) -> None:
    worker = Worker()
    for number in range(clients):
        worker.counted(1, f"user{number}", "app").other_requests = number + 1
    documents = worker.take()
    assert sorted(row["requests"] for document in documents for row in rows(document)) == list(range(1, clients + 1))
    assert [document["seq"] for document in documents] == list(range(len(documents)))
    assert max(len(rows(document)) for document in documents) <= MAX_ROWS
    assert worker.take() == []


def test_a_mute_goes_on_in_intervals_without_a_request_and_the_meter_stays_as_long() -> None:
    worker = Worker()
    worker.counted(1, "alice", "app").count_throttle(CONSUMER, 1500, now_ms=500)
    muted = [rows(document)[0]["fetch_muted_ms"] for end_ms in (1000, 2000, 3000) for document in worker.take(end_ms)]
    assert muted == [500, 1000]
    assert len(worker.meters) == 0


def test_a_throttle_of_any_kind_is_in_columns_of_that_kind_as_long_as_it_lasts() -> None:
    worker = Worker()
    for name in ("alice", "bob"):
        worker.counted(1, name, "app").other_requests = 1
    mutation = QuotaKind.CONTROLLER_MUTATION_RATE
    worker.counted(1, "bob", "app").count_throttle(mutation, 1500, now_ms=500)
    found = []
    for end_ms in (1000, 2000, 3000):
        worker.counted(1, "alice", "app").other_requests += 1
        [document] = worker.take(end_ms)
        assert tuple(document["rows"])[: len(COLUMNS)] == COLUMNS
        further = list(document["rows"])[len(COLUMNS) :]
        assert further == (list(mutation.row.columns) if end_ms < 3000 else [])
        found.append({row["user"]: [row.get(name) for name in mutation.row.columns] for row in rows(document)})
    nothing = [0, 0, None, None, None, None, 0, 0, 0]
    assert found == [
        {"alice": nothing, "bob": [0, 0, None, None, None, None, 1, 1500, 500]},
        {"alice": nothing, "bob": [0, 0, None, None, None, None, 0, 0, 1000]},
        {"alice": [None] * 9},
    ]
    assert len(worker.meters) == 1


def test_meters_that_nobody_holds_are_dropped_when_their_throttles_are_over() -> None:
    meters = Meters(10)
    meters.find(MeterKey("PLAIN", 1, "alice", "app")).count_throttle(QuotaKind.REQUEST_PERCENTAGE, 100, now_ms=0)
    recorder = Recorder(meters, [], Engine(Policy()))
    for now_ms in (1000, 2000):
        list(recorder.take(now_ms))
    assert len(meters) == 0


def test_a_client_that_is_connected_and_idle_keeps_its_meter() -> None:
    worker = Worker()
    held_by_a_session = worker.listener.hold(1, "alice", "app")
    assert worker.take() == []
    assert len(worker.meters) == 1
    assert worker.listener.hold(1, "alice", "app") is held_by_a_session
    worker.listener.give_back(held_by_a_session)
    worker.listener.give_back(held_by_a_session)
    assert len(worker.listener) == 0
    assert worker.take() == []
    assert len(worker.meters) == 0


def test_limits_follow_the_policy() -> None:
    worker = Worker()
    meter = worker.counted(1, "alice", "app")
    limits = []
    for policy in (Policy(), Policy({Entity(user="alice"): {PRODUCER: 7.0}}), Policy()):
        worker.engine.apply(policy, 0)
        meter.other_requests = 1
        [document] = worker.take()
        limits.append(rows(document)[0]["produce_limit"])
    assert limits == [None, 7.0, None]


def test_refused_connections_have_a_row_without_a_name() -> None:
    worker = Worker()
    worker.listener.refused = 3
    [document] = worker.take()
    [row] = rows(document)
    assert (row["user"], row["client_id"], row["broker"], row["connections_refused"]) == (None, None, -1, 3)
    assert row["produce_limit"] is None
    assert worker.take() == []


def test_dropped_documents_and_rows_are_in_next_document() -> None:
    worker = Worker()
    worker.lost = (2, 1700)
    worker.listener.refused = 1
    [document] = worker.take()
    assert (document["dropped_documents"], document["dropped_rows"]) == (2, 1700)


def test_unusual_client_ids_are_recorded_unchanged() -> None:
    worker = Worker()
    names = ["", "a\nb", "ü", "\0", "<default>", "x" * 32_000, "\u2028\u202e"]
    for name in names:
        worker.counted(1, name, name).other_requests = 1
    [document] = worker.take()
    assert [row["client_id"] for row in rows(document)] == names


def test_half_a_surrogate_pair_does_not_end_the_records() -> None:
    worker = Worker()
    worker.counted(1, "a\ud800b", "app").other_requests = 1
    worker.counted(1, "\0\U0001f600", "app").other_requests = 1
    [document] = worker.take()
    assert [row["user"] for row in rows(document)] == ["a?b", "\0\U0001f600"]


@pytest.mark.parametrize("name", ["x" * 32_767, "\0" * 32_767, "\u00fc" * 16_383])
def test_documents_of_the_longest_names_are_split_and_stay_small(name: str) -> None:
    """Brokers take batches of 1 MiB by default; these are the sizes before compression."""
    worker = Worker(Policy({Entity(client_id=Default.DEFAULT): {PRODUCER: 1.0}}))
    for number in range(40):
        worker.counted(number, name, name).other_requests = number + 1
    taken = list(worker.taken(1000, 0, 1000))
    assert len(taken) > 1
    assert max(len(document.value) for document in taken) < 2**20
    found = [row["requests"] for document in taken for row in rows(json.loads(document.value))]
    assert sorted(found) == list(range(1, 41))


def test_the_wall_clock_may_be_set_back() -> None:
    worker = Worker()
    documents = []
    for begin_ms in (5000, 6000, 2000, 3000):
        worker.counted(1, "alice", "app").other_requests = 1
        documents += [json.loads(each.value) for each in worker.taken(0, begin_ms, 1000)]
    assert [document["seq"] for document in documents] == [0, 1, 2, 3]
    assert [document["time_ms"] for document in documents] == [5000, 6000, 2000, 3000]


def test_two_runs_have_two_boots() -> None:
    assert fields()["boot"] != fields()["boot"]


def test_limits_in_shadow_have_columns_where_there_are_any() -> None:
    """And a rule in shadow is none in force: no limit, no rule."""
    alice, bob, carol = (Entity(user=name) for name in ("alice", "bob", "carol"))
    kind = QuotaKind.PRODUCER_BYTE_RATE
    limits = {user: {kind: 1000.0} for user in (alice, bob, carol)}
    engine, meters = Engine(Policy(limits)), Meters(100)
    listener = Accounts(meters, engine, "PLAIN")
    recorder = Recorder(meters, [listener], engine)
    clients = [listener.hold(1, name, "app").meter for name in ("alice", "bob", "carol")]

    def rows() -> Columns:
        for meter in clients:
            meter.other_requests = 1
        [columns] = [each for each in recorder.take(3000) if each is not None]
        return columns

    assert tuple(rows()) == COLUMNS
    engine.apply(Policy(limits, {alice: Terms(shadow=True), bob: Terms(proposed={kind: 500.0})}), 0)
    clients[0].count_shadow(kind, 700, 2000, 1000)
    found = rows()
    assert tuple(found) == (*COLUMNS, *kind.row.shadow_columns)
    assert list(found["produce_limit"]) == [None, 1000.0, 1000.0]
    assert list(found["produce_rule"]) == [None, "user=bob", "user=carol"]
    assert list(found["produce_shadow_limit"]) == [1000.0, 500.0, None]
    assert list(found["produce_shadow_throttled"]) == [1, 0, 0]
    assert list(found["produce_shadow_throttle_ms"]) == [700, 0, 0]
    assert list(found["produce_shadow_muted_ms"]) == [700, 0, 0]
    engine.apply(Policy(limits), 0)
    assert tuple(rows()) == COLUMNS


def test_caps_say_what_they_are_and_which_of_them_held_for_how_long() -> None:
    tenant, batch = Entity(user="alice", cap=True), Entity(client_id=Prefix("batch-"), cap=True)
    worker = Worker(Policy({tenant: {PRODUCER: 1024.0}, batch: {PRODUCER: 0.5}}, {batch: Terms(shared=False)}))
    meter = worker.counted(1, "alice", "batch-1")
    meter.other_requests = 1
    worker.counted(1, "bob", "app").other_requests = 1
    # Muted by one cap from 100 to 400 and by the other from 300 to 750; a request waits for the first from 900 on.
    for rule, at_ms, throttle_ms in ((tenant, 100, 300), (batch, 300, 450)):
        meter.count_throttle(PRODUCER, throttle_ms, at_ms, cap=rule)
    meter.count_wait(PRODUCER, 1, 900, cap=tenant)
    found = {row["user"]: row for [document] in [worker.take(1000)] for row in rows(document)}
    names = PRODUCER.row.cap_columns
    caps = [
        {"rule": "cap user=alice", "limit": 1024, "user": "alice", "client_id": None},
        {"rule": "cap client-id-prefix=batch-, shared=false", "limit": 0.5, "user": None, "client_id": "batch-1"},
    ]
    assert json.loads(found["alice"][names[0]]) == caps
    assert [found["alice"][name] for name in names[1:]] == [caps[1]["rule"], 2, 750, 750]
    assert found["alice"]["produce_muted_ms"] == 750
    assert [found["bob"][name] for name in names] == [None, None, 0, 0, 0]
    # Nothing is counted, and it waits all the time; then it goes, of a counter that has another rule by now.
    [waiting] = rows(worker.take(2000)[0])
    assert [waiting[name] for name in names[1:]] == ["cap user=alice", 0, 0, 1000]
    worker.engine.apply(Policy(), 2000)
    meter.count_wait(PRODUCER, -1, 2500, 1600, cap=tenant)
    [gone] = rows(worker.take(3000)[0])
    assert [gone[name] for name in names] == [None, "cap user=alice", 1, 1600, 500]
    assert worker.take(4000) == []


def test_a_prefix_says_whether_its_clients_share_a_counter() -> None:
    each, all_ = Entity(client_id=Prefix("tmp-")), Entity(client_id=Prefix("team-"))
    worker = Worker(Policy({each: {PRODUCER: 10.0}, all_: {PRODUCER: 10.0}}, {each: Terms(shared=False)}))
    for client_id in ("tmp-1", "team-1"):
        worker.counted(1, "alice", client_id).other_requests = 1
    found = {
        row["client_id"]: (row["produce_rule"], row["produce_counter_client_id"]) for row in rows(worker.take()[0])
    }
    assert found == {
        "tmp-1": ("client-id-prefix=tmp-, shared=false", "tmp-1"),
        "team-1": ("client-id-prefix=team-", "team-*"),
    }


def test_the_window_of_token_buckets_and_owners_are_said_where_they_are_not_those_of_kafka() -> None:
    plain = fields()
    other = fields("quotas: {store: {type: cluster}, controller_window: {samples: 5, size: 2s}}\n")
    assert other.keys() - plain.keys() == {"controller_samples", "controller_sample_ms"}
    assert (other["controller_samples"], other["controller_sample_ms"]) == (5, 2000)
    owned = fields(QUOTAS + 'owners: {instance: a, fixed: {a: "0-2", b: {brokers: "3-5", advertise: {PLAIN: b.test}}}}')
    assert (owned.keys() - plain.keys(), owned["owned"]) == ({"owned"}, 1)
