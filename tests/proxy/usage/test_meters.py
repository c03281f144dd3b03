"""What the sessions count, and what is left of it when a record has been taken."""

import random
from struct import pack
from sys import getsizeof

import pytest

from proxy.session.session import Session
from proxy.usage.accounts import Accounts
from proxy.usage.kind_usage import Throttles
from proxy.usage.meter import Meter, MeterKey
from proxy.usage.meters import Meters
from quotas.entities import Default, Entity
from quotas.names import MAX_NAME_BYTES, OTHER
from quotas.policy import Policy
from tests.proxy.playbook import (
    CONSUMER,
    PRODUCER,
    FakeWire,
    Play,
    authenticate,
    authenticate_answer,
    fetch,
    fetch_answer,
    fetch_quota,
    frame,
    handshake,
    handshake_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    produce_quota,
    request,
)


def meter_of(play: Play, user: str = "ANONYMOUS", client_id: str = "app") -> Meter:
    return play.meters.find(MeterKey("PLAIN", 1, user, client_id))


def bytes_in(meter: Meter) -> int:
    return meter.produce_bytes + 4 * meter.produce_requests + meter.other_bytes


@pytest.mark.parametrize("cut", [1, 7, 13, 10**6])
def test_every_byte_and_every_request_is_counted_once_however_they_come(cut: int) -> None:
    play = Play()
    sent = b"".join(
        (list_offsets(1), produce(2, 500), produce(3, 500), fetch(4), list_offsets(5), produce(6, 0, acks=0))
    )
    got = b"".join((list_offsets_answer(1), produce_answer(2), produce_answer(3), fetch_answer(4, 900)))
    got += list_offsets_answer(5)
    for start in range(0, len(sent), cut):
        play.from_client(sent[start : start + cut])
    for start in range(0, len(got), cut):
        play.from_broker(got[start : start + cut])
    meter = meter_of(play)
    assert (bytes_in(meter), meter.bytes_out) == (len(sent), len(got))
    assert (meter.produce_requests, meter.fetch_requests, meter.other_requests) == (3, 1, 3)
    assert meter.produce_bytes == sum(len(produce(0, size)) - 4 for size in (500, 500, 0))
    assert meter.fetch_bytes == len(fetch_answer(4, 900)) - 4


def test_the_time_of_a_request_ends_with_its_answer() -> None:
    play = Play()
    play.from_client(produce(1, 10) + list_offsets(2))
    play.loop.advance(30)
    play.from_broker(produce_answer(1))
    play.loop.advance(12)
    play.from_broker(list_offsets_answer(2)[:5])
    play.loop.advance(1000)
    play.from_broker(list_offsets_answer(2)[5:])
    assert meter_of(play).request_time_ms == 30 + 42 + 1000


def test_delay_of_throttled_answer_is_not_request_time() -> None:
    play = fetch_quota(response="delay")
    play.from_client(fetch(1))
    play.loop.advance(50)
    play.from_broker(fetch_answer(1, 30_000))
    play.loop.advance(60_000)
    meter = meter_of(play)
    assert (meter.request_time_ms, meter.bytes_out) == (50, len(fetch_answer(1, 30_000)))
    assert meter.use_of(CONSUMER).throttles.throttled == 1


def test_requests_of_another_client_id_are_anothers_and_so_are_their_answers() -> None:
    play = Play()
    play.from_client(list_offsets(1) + request(2, 5, 2, bytes(9), client_id=b"other") + produce(3, 10, client_id=b"x"))
    play.from_broker(list_offsets_answer(1) + list_offsets_answer(2, padding=7) + produce_answer(3))
    assert meter_of(play).bytes_out == len(list_offsets_answer(1))
    assert meter_of(play, client_id="other").bytes_out == len(list_offsets_answer(2, padding=7))
    assert [meter_of(play, client_id=name).connections for name in ("app", "other", "x")] == [0, 0, 1]
    assert sum(play.meters[key].connections_opened for key in play.meters) == 1
    play.session.close()
    assert meter_of(play, client_id="x").connections == 0


def test_a_connection_is_counted_for_whom_it_is_when_that_is_known() -> None:
    play = Play(authenticated=False)
    sent = handshake(1, "PLAIN"), authenticate(2, b"\0alice\0x"), produce(3, 10)
    play.from_client(sent[0])
    play.from_broker(handshake_answer(1))
    play.from_client(sent[1])
    play.from_broker(authenticate_answer(2))
    play.from_client(sent[2])
    assert list(play.meters) == [MeterKey("PLAIN", 1, "alice", "app")], "nobody is metered before authentication"
    alice = meter_of(play, user="alice")
    assert (alice.connections, alice.connections_opened, bytes_in(alice)) == (1, 1, len(sent[2]))
    assert bytes_in(play.listener.nobody.meter) == len(sent[0]) + len(sent[1])


def test_client_beginning_optional_login_is_unmetered_until_success() -> None:
    play = Play()
    play.from_client(list_offsets(1))
    play.from_broker(list_offsets_answer(1))
    before = bytes_in(meter_of(play))
    play.from_client(handshake(2, "PLAIN"))
    play.from_broker(handshake_answer(2))
    play.from_client(request(18, 2, 3, client_id=b"claimed"))
    play.from_client(authenticate(4, b"\0alice\0x"))
    assert [key.client_id for key in play.meters] == ["app"]
    assert bytes_in(meter_of(play)) == before
    assert meter_of(play).connections == 0


def test_raw_tokens_are_bytes_too() -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "PLAIN", version=0))
    play.from_broker(handshake_answer(1))
    play.from_client(frame(b"\0alice\0x"))
    play.from_broker(frame(b""))
    assert bytes_in(play.listener.nobody.meter) == len(handshake(1, "PLAIN", version=0)) + len(frame(b"\0alice\0x"))
    assert play.listener.nobody.meter.bytes_out == len(handshake_answer(1)) + 4
    assert len(play.meters) == 0


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_a_throttle_counts_in_shadow_too(mode: str) -> None:
    play = produce_quota(mode=mode)
    play.from_client(produce(1, 30_000))
    throttles = meter_of(play).use_of(PRODUCER).throttles
    assert throttles.throttled == 1
    assert throttles.throttle_ms > 10_000


def test_mutes_that_overlap_are_one_stretch_of_time_cut_at_the_interval() -> None:
    throttles = Throttles()
    throttles.count(500, now_ms=1000)
    throttles.count(300, now_ms=1100)
    throttles.count(700, now_ms=1400)
    assert throttles.take(2000) == (3, 1500, 1000)
    assert throttles.take(3000) == (0, 0, 100)
    throttles.count(100, now_ms=5000)
    assert throttles.take(6000) == (1, 100, 100)


@pytest.mark.parametrize("seed", range(5))
def test_the_muted_time_of_an_interval_is_that_in_which_a_connection_is_not_read(seed: int) -> None:
    """Two connections of one client under one quota; each millisecond is looked at."""
    play, chance = produce_quota(), random.Random(seed)
    wire = FakeWire()
    other = Session(
        play.worker,
        wire,
        lambda _: None,
        lambda _: None,
        sasl=play.sasl_rules,
        accounts=Accounts(play.meters, play.engine, "PLAIN"),
        peer="10.0.0.2:6",
        user="ANONYMOUS",
        authenticated=True,
    )
    other.connected(FakeWire(), 1)
    seen, shown, waited_ms = [], [], 0
    for _ in range(40):
        muted_ms = 0
        for _ in range(1000):
            for session, client in ((play.session, play.client), (other, wire)):
                if not client.paused and chance.random() < 0.002:
                    session.requests.feed(produce(1, chance.randrange(6000)), play.loop.now_ms)
                if session.in_flight:
                    session.answers.feed(produce_answer(1), play.loop.now_ms)
            muted_ms += play.client.paused or wire.paused
            play.loop.advance(1)
        throttled, throttle_ms, shown_ms = meter_of(play).take(play.loop.now_ms)[0][-6:-3]
        assert isinstance(throttle_ms, int)
        seen.append(muted_ms)
        shown.append(shown_ms)
        waited_ms += throttle_ms
        assert bool(throttle_ms) == bool(throttled)
    assert shown == seen
    assert 1000 in seen  # muted all the time
    assert waited_ms > sum(seen)  # both at once, some of it


def test_clients_beyond_the_most_share_a_meter() -> None:
    meters = Meters(2)
    keys = [MeterKey("A", 1, "u", name) for name in "abcd"]
    found = [meters.find(key) for key in keys]
    assert [meter.key.client_id for meter in found] == ["a", "b", OTHER, OTHER]


def test_clients_whose_names_find_no_room_share_a_meter_of_their_user_until_others_are_gone() -> None:
    meters = Meters(4)
    long = [MeterKey("A", 1, "u", str(number) + "x" * 250) for number in range(100)]
    found = [meters.find(key) for key in long]
    assert len(meters) <= 8
    assert {meter.key.client_id for meter in found[8:]} == {OTHER}
    assert meters.find(long[0]) is found[0]
    del found
    meters.drop_unused(meters)
    assert meters.find(long[99]).key == long[99]


@pytest.mark.parametrize("authenticated", [True, False])
def test_names_of_any_length_take_no_more_than_short_ones(authenticated: bool) -> None:
    """The client-id, the transactional id and the user, in what a connection keeps, its meters and its counters."""
    play = Play(policy=Policy({Entity(client_id=Default.DEFAULT): {PRODUCER: 1e6, CONSUMER: 1e6}}))
    play.worker.request_limit = play.worker.unauthenticated_request_limit = 10**6
    play = Play(engine=play.engine, authenticated=authenticated)
    play.worker.unauthenticated_request_limit = play.session.requests.splitter.limit = 10**6
    name = b"x" * 32_000 + "🎈".encode()
    play.from_client(request(18, 2, 1, client_id=name) + produce(2, 10, client_id=name))
    play.from_client(request(1, 11, 3, pack(">iiiibiiiih", -1, 500, 1, 9, 0, 0, -1, 0, 0, 0), client_id=name))
    play.from_client(request(0, 7, 4, pack(">h", 30_000) + bytes(30_000) + pack(">hii", 1, 1000, 0), client_id=b"app"))
    play.from_client(handshake(5, "🎈" * 8000))
    for key in (*play.meters, *(usage[1:3] for usage in play.engine.usage(play.loop.now_ms))):
        assert all(len(part.encode()) <= MAX_NAME_BYTES for part in key if isinstance(part, str))
    assert bool(len(play.meters)) is authenticated
    play.session.requests.splitter.release()  # what is not read yet: behind a Produce before login all waits
    assert kept_bytes(play.session) < 20_000


def kept_bytes(root: object) -> int:
    """Return the size of all texts and bytes that can be reached from a session, but not by way of what all share."""
    shared = ("_rules", "_meters", "_sasl_rules", "bound", "_in_flight", "in_flight", "client", "_broker", "write")
    total, seen, found = 0, set(), [root]
    while found:
        thing = found.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, str | bytes):
            total += getsizeof(thing)
        elif isinstance(thing, tuple | list):
            found += thing
        elif type(thing).__module__.startswith(("proxy.", "protocol.frames")):
            slots = {slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())}
            found += [getattr(thing, slot) for slot in slots - set(shared) if hasattr(thing, slot)]
    return total


def test_a_quota_for_a_long_name_holds_for_it_and_for_no_other() -> None:
    name = "x" * 32_000
    play = Play(policy=Policy({Entity(client_id=name): {PRODUCER: 1024}}))
    play.from_client(produce(1, 20_000, client_id=name.encode()[:-1]))
    assert not play.client.paused
    play.from_client(produce(2, 20_000, client_id=name.encode()))
    assert play.client.paused


def test_a_meter_stays_while_anything_may_still_be_counted_on_it() -> None:
    play = Play()
    play.from_client(produce(1, 10) + list_offsets(2) + request(2, 5, 3, bytes(9), client_id=b"other"))
    for key in play.meters:
        play.meters[key].take(0)
    play.meters.drop_unused(play.meters)
    assert len(play.meters) == 2  # one has answers under way, the other the connection
    play.from_broker(produce_answer(1) + list_offsets_answer(2) + list_offsets_answer(3))
    assert meter_of(play).bytes_out == len(produce_answer(1) + list_offsets_answer(2))
    play.meters.drop_unused(play.meters)
    play.from_client(produce(4, 10))  # begins as the first one did: neither its header is read nor its meter looked up
    assert meter_of(play).produce_requests == 1
    play.from_broker(produce_answer(4))
    play.session.close()
    play.meters.drop_unused(play.meters)
    assert len(play.meters) == 0
