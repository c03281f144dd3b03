"""What was sent is what the metrics show, to the byte, whatever pauses, goes, comes back, is folded or scraped when."""

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from proxy.admin.client_series import ClientSeries
from proxy.admin.entity_series import EntitySeries
from proxy.admin.series import OTHER, Names
from proxy.usage.accounts import Account, Accounts
from proxy.usage.lately import NOW_MS
from proxy.usage.meter import ClientNames, ClientState, MeterKey, Traffic
from proxy.usage.meters import Meters
from proxy.usage.records import Recorder
from quotas.engine import Bound, Engine, Window
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
DAY_MS = 24 * 3600 * 1000
POLICY = Policy(
    {
        Entity(user=Default.DEFAULT, client_id=Default.DEFAULT): {PRODUCE: 50_000.0, FETCH: 1e6},
        Entity(user="u1", client_id="c1"): {PRODUCE: 10.0},
    }
)


class Shown:
    """What series have grown by, all told; one that vanishes and comes back begins at 0."""

    def __init__(self) -> None:
        self.total: Counter[object] = Counter()
        self._before: dict[object, float] = {}

    def look(self, series: Iterable[tuple[object, float]]) -> None:
        after = dict(series)
        for name, value in after.items():
            assert value >= self._before.get(name, 0.0), "no series goes backwards"
            self.total[name] += round(value - self._before.get(name, 0.0))
        self._before = after


class Sessions:
    """Three connections of each client, that resolve when the engine says so, and keep what they hold otherwise."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: dict[tuple[str, str, QuotaKind, int, int], tuple[int, Bound]] = {}

    def bound(self, user: str, client_id: str, kind: QuotaKind, broker: int, session: int) -> Bound:
        key = (user, client_id, kind, broker, session)
        generation, held = self._held.get(key, (-1, None))
        if held is not None and generation == self._engine.generation:
            return held
        bound = self._engine.resolve(user, client_id, kind, broker)
        bound.hold()
        if held is not None:
            held.let_go()
        self._held[key] = self._engine.generation, bound
        return bound

    def leave(self, chance: random.Random) -> None:
        """Close all connections, or some: a counter goes when nobody holds it."""
        keys = sorted(self._held)
        for key in chance.sample(keys, len(keys) // chance.choice([1, 1, 4, 48])):
            _, bound = self._held.pop(key)
            bound.let_go()


def day(seed: int, most: int, *, scraped: bool = True) -> tuple[Counter[object], Counter[object], int]:
    """Return what was sent and throttled, what was shown of it, and how often counters went."""
    chance, now_ms, went = random.Random(seed), 0, 0
    engine = Engine(POLICY, Window(), max_names_bytes=chance.choice([500, 2**20]))
    sessions, entities, sent, shown = Sessions(engine), EntitySeries(most), Counter[object](), Shown()

    def scrape() -> None:
        taken = []
        for one in engine.take(now_ms):
            taken.append(one)
            if chance.random() < 0.1:  # others have their turn while this goes on
                engine.expire(now_ms)
        entities.update(taken, engine.take_gone())
        shown.look(
            ((names, kind, broker, what), value)
            for names, kind, broker, series in entities
            for what, value in zip(("charged", "throttled", "ms"), series.totals[:3], strict=True)
        )

    while now_ms < DAY_MS:
        now_ms += chance.choice([0, 5, 300, 2000, 15_000, 33_000, 34_000, 50_000, 200_000])
        user, client_id = f"u{chance.randrange(3)}", f"c{chance.randrange(4)}"
        kind, broker = chance.choice([PRODUCE, FETCH]), chance.randrange(2)
        match chance.randrange(8):
            case 0:
                went += engine.expire(now_ms)
            case 1 if scraped:
                scrape()
            case 2:
                sessions.leave(chance)
            case 3:
                engine.apply(POLICY, now_ms)
            case _:
                bound, size = (
                    sessions.bound(user, client_id, kind, broker, chance.randrange(3)),
                    chance.randrange(10**6),
                )
                throttle_ms = bound.charge(size, now_ms)
                sent[Names(user, client_id), kind, broker, "charged"] += size
                if throttle_ms:
                    bound.count_throttle(throttle_ms)
                    sent[Names(user, client_id), kind, broker, "throttled"] += 1
                    sent[Names(user, client_id), kind, broker, "ms"] += throttle_ms
    scrape()
    return sent, shown.total, went


def summed(counts: Counter[object]) -> Counter[object]:
    total: Counter[object] = Counter()
    for key, number in counts.items():
        assert isinstance(key, tuple)
        total[tuple(each for each in key[1:] if not isinstance(each, int))] += number  # some are summed over brokers
    return total


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [0, 3, 20, 100])
def test_series_add_up_to_bytes_sent_despite_random_pauses(seed: int, most: int) -> None:
    """A counter that went while nobody looked used to be guessed from its totals: of 4.05 MB, 1.01 MB were shown."""
    sent, shown, went = day(seed, most)
    assert went > 100
    assert +summed(shown) == +summed(sent)
    assert all(key[0] == OTHER for key in shown if isinstance(key, tuple)) or most


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_named_series_equal_bytes_sent_when_all_clients_fit(seed: int) -> None:
    chance = random.Random(seed)
    engine, entities, now_ms = Engine(POLICY), EntitySeries(100), 0
    sessions, sent = Sessions(engine), Counter[str]()
    while now_ms < DAY_MS:
        now_ms += chance.choice([15_000, 50_000, 100])
        name = f"c{chance.randrange(3)}"
        sessions.bound("u", name, PRODUCE, 1, chance.randrange(2)).charge(1_000_000, now_ms)
        sent[name] += 1_000_000
        engine.expire(now_ms)
        if chance.random() < 0.3:
            entities.update(engine.take(now_ms), engine.take_gone())
    entities.update(engine.take(now_ms), engine.take_gone())
    assert {names.client_id: series.totals.charged for names, _, _, series in entities} == sent


def test_produce_every_50_s_scraped_every_15_adds_up() -> None:
    engine, entities, sent = Engine(POLICY), EntitySeries(100), 0
    for now_s in range(3600):
        if now_s % 50 == 0:
            engine.resolve("u", "job", PRODUCE, 1).charge(1_000_000, now_s * 1000)
            sent += 1_000_000
        engine.expire(now_s * 1000)
        if now_s % 15 == 0:
            entities.update(engine.take(now_s * 1000), engine.take_gone())
    ((_, _, _, series),) = entities
    assert series.totals.charged == sent


def test_day_without_scrape_loses_no_bytes_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quotas.counters.MAX_GONE", 2)
    sent, shown, _ = day(1, 100, scraped=False)
    assert +summed(shown) == +summed(sent)
    assert any(key[0] == OTHER for key in shown if isinstance(key, tuple))


def test_bytes_sent_without_quota_are_not_in_its_series() -> None:
    engine, entities = Engine(POLICY), EntitySeries(100)
    bound = engine.resolve("u1", "c1", PRODUCE, 1)
    for size, policy in ((1, Policy()), (10, POLICY), (100, Policy()), (1000, POLICY)):
        bound.charge(size, 0)
        engine.apply(policy, 0)
    entities.update(engine.take(0), engine.take_gone())
    ((_, _, _, series),) = entities
    assert series.totals.charged == 101


def test_refunded_bytes_do_not_decrease_a_series() -> None:
    engine, entities, shown = Engine(POLICY), EntitySeries(100), Shown()
    bound = engine.resolve("u1", "c1", PRODUCE, 1)
    for size in (100, -60, 30, 50):
        bound.record(size, 0)
        entities.update(engine.take(0), engine.take_gone())
        shown.look((names, series.totals.charged) for names, _, _, series in entities)
    assert list(shown.total.values()) == [bound.recorded_total]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("max_entities", "most"), [(0, 100), (3, 5), (100, 100)])
def test_client_traffic_adds_up_whatever_usage_records_take(
    seed: int, max_entities: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorder takes what meters have counted; meters go when nobody holds them any more."""
    monkeypatch.setattr("proxy.usage.records.SLICE", 1)
    chance, meters, clients = random.Random(seed), Meters(most), ClientSeries(max_entities)
    accounts, recorder = Accounts(meters, Engine(Policy()), "A"), Recorder(meters, [], Engine(Policy()))
    sent: Counter[object] = Counter()
    shown, held = Shown(), list[Account]()

    def scrape(now_ms: int) -> None:
        clients.update(meters.take_traffic(now_ms))
        shown.look(
            ((names, what), value)
            for names, client in clients
            for what, value in zip(Traffic._fields, client.traffic, strict=True)
        )

    for now_ms in range(600):
        match chance.randrange(8):
            case 0:
                for key in meters:
                    meters[key].take(now_ms)
            case 1:
                meters.drop_unused(key for key in meters if not meters[key].active)
            case 2:
                for _ in recorder.take(now_ms):
                    if chance.random() < 0.1:
                        scrape(now_ms)
            case 3:
                scrape(now_ms)
            case 4:
                gone = chance.randrange(3)
                for account in held[:gone]:
                    accounts.give_back(account)
                held = held[gone:]
            case _:
                user, client_id = f"u{chance.randrange(3)}", str(chance.randrange(9))
                held.append(accounts.hold(chance.randrange(2), user, client_id, exempt=chance.random() < 0.3))
                size, meter = chance.randrange(10**6), chance.choice(held).meter
                meter.produce_requests += 1
                meter.produce_bytes += size
                meter.bytes_out += 50
                meter.connections_opened += 1
                sent["bytes_in"] += size + 4
                sent["bytes_out"] += 50
                sent["requests"] += 1
                sent["connections_opened"] += 1
                sent["exempt_in"] += (size + 4) * meter.key.exempt
                sent["exempt_out"] += 50 * meter.key.exempt
    scrape(600)
    assert summed(shown.total) == {(what,): number for what, number in sent.items()}


def had(client_id: str, *traffic: int, connections: int = 0, is_throttled: bool = False) -> ClientState:
    return ClientState(ClientNames("A", "u", client_id), Traffic(*traffic), connections, is_throttled)


def test_clients_without_a_place_are_other_and_those_with_the_most_bytes_come_first() -> None:
    clients = ClientSeries(2)
    clients.update([had(name, size, 0, 1) for name, size in (("a", 1), ("b", 3), ("c", 2), ("d", 0))])
    clients.update([had("a", 7, 7, 7), had("b"), *[had("c", 1, 1, 1)] * 2])
    assert {client: shown.traffic[:3] for client, shown in clients} == {
        ClientNames("A", "u", "b"): (3, 0, 1),
        ClientNames("A", "u", "c"): (4, 2, 3),
        ClientNames("A", "other", "other"): (8, 7, 9),
    }
    assert clients.folded == 1
    clients.update([had("d", 1, 1, 1)])
    assert (ClientNames("A", "u", "d"), (1, 1, 1)) in [(client, shown.traffic[:3]) for client, shown in clients]


def test_each_listener_has_its_own_other_and_gauges_are_those_of_now() -> None:
    clients = ClientSeries(0)
    elsewhere = ClientState(ClientNames("B", "u", "a"), Traffic(5), 7)
    clients.update([had("a", connections=2, is_throttled=True), had("b", connections=1, is_throttled=True), elsewhere])
    shown = {client.listener: (each.connections, each.muted, each.traffic.bytes_in) for client, each in clients}
    assert shown == {"A": (3, 2, 0), "B": (7, 0, 5)}
    clients.update([had("a", connections=1)])
    shown = {client.listener: (each.connections, each.muted, each.traffic.bytes_in) for client, each in clients}
    assert shown == {"A": (1, 0, 0), "B": (0, 0, 5)}


def test_throttled_and_waiting_clients_are_shown_until_now_is_over() -> None:
    meters = Meters(100)
    muted, waiting, done = (meters.find(MeterKey("A", 1, "u", name)) for name in ("muted", "waiting", "done"))
    muted.count_throttle(QuotaKind.PRODUCER_BYTE_RATE, 500, 1000)
    waiting.count_wait(QuotaKind.CONSUMER_BYTE_RATE, 1, 1000)
    done.count_throttle(QuotaKind.PRODUCER_BYTE_RATE, 100, 1000)
    states = {state.client.client_id: state.is_throttled for state in meters.take_traffic(1100 + NOW_MS)}
    assert states == {"muted": True, "waiting": True, "done": False}
    states = {state.client.client_id: state.is_throttled for state in meters.take_traffic(1500 + NOW_MS)}
    assert states == {"muted": False, "waiting": True, "done": False}


def test_meters_that_are_gone_are_kept_in_bounds_until_they_have_been_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.usage.meters.MAX_GONE", 2)
    meters = Meters(100)
    for number in range(10):
        meters.find(MeterKey("A", 1, "u", str(number))).bytes_out += 5
    recorder = Recorder(meters, [], Engine(Policy()))
    for _ in range(2):
        list(recorder.take(0))
    assert len(meters) == 0
    assert sorted(meters.take_traffic(0)) == [
        ClientState(ClientNames("A", "other", "other"), Traffic(0, 40, 0)),
        ClientState(ClientNames("A", "u", "0"), Traffic(0, 5, 0)),
        ClientState(ClientNames("A", "u", "1"), Traffic(0, 5, 0)),
    ]
    assert list(meters.take_traffic(0)) == []
