"""What is shown by name, what is summed up, and that no counter goes backwards."""

from proxy.admin.entity_series import EntitySeries, ShownEntity
from proxy.admin.exposition import SUMMED
from proxy.admin.series import OTHER, Names
from quotas.counted import CLUSTER
from quotas.engine import Counted, CounterKey, CounterState, Gone
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from tests.proxy.snapshots import PRODUCE, counted


def client(
    name: str, charged: float = 0.0, *, throttle_ms: int = 0, rate: float = 0.0, broker: int = 1
) -> CounterState:
    return PRODUCE._replace(
        client_id=name,
        entity=Entity(client_id=name),
        charged_total=charged,
        throttle_ms_total=throttle_ms,
        throttled_total=throttle_ms // 1000,
        rate=rate,
        broker=broker,
    )


def update(entities: EntitySeries, usage: list[CounterState], gone: list[CounterState] | None = None) -> None:
    """Take over counters that have counted since the last time what stands in them as totals."""
    entities.update(
        [(one, counted(one)) for one in usage],
        [Gone(CounterKey(*one[:4]), one.entity, counted(one)) for one in gone or ()],
    )


def by_name(entities: EntitySeries) -> dict[str, ShownEntity]:
    return {names.client_id: series for names, _, _, series in entities}


def charged(entities: EntitySeries) -> dict[str, float]:
    return {name: series.totals.charged for name, series in by_name(entities).items()}


def test_a_client_within_the_places_has_a_series_of_its_own() -> None:
    entities = EntitySeries(2)
    update(entities, [client("a", 10.0, throttle_ms=2000, rate=250.0)])
    ((names, kind, broker, series),) = entities
    assert (names, kind, broker) == (Names("", "a"), QuotaKind.PRODUCER_BYTE_RATE, 1)
    assert (series.limit, series.rate, series.ratio) == (1000.0, 250.0, 0.25)
    assert series.totals == Counted(10.0, 2, 2000)
    assert entities.folded == 0


def test_series_are_by_broker_while_all_fit_and_are_summed_from_then_on() -> None:
    entities = EntitySeries(3)
    fetch = client("a", 7.0)._replace(kind=QuotaKind.CONSUMER_BYTE_RATE)
    counters = [client("a", 1.0, rate=100.0), client("a", 2.0, rate=300.0, broker=2), fetch]
    update(entities, counters)
    assert {(kind, broker, series.totals.charged) for _, kind, broker, series in entities} == {
        (QuotaKind.CONSUMER_BYTE_RATE, 1, 7.0),
        (QuotaKind.PRODUCER_BYTE_RATE, 2, 2.0),
        (QuotaKind.PRODUCER_BYTE_RATE, 1, 1.0),
    }
    for counted_before in (0.0, 3.0):
        update(entities, [*counters, client("a", 0.0, broker=3)])
        shown = {kind: (broker, series) for _, kind, broker, series in entities}
        broker, produced = shown[QuotaKind.PRODUCER_BYTE_RATE]
        assert (broker, produced.totals.charged) == (SUMMED, 3.0 + counted_before)
        assert (produced.rate, produced.ratio, produced.limit) == (400.0, 0.3, 1000.0)
    update(entities, [client("a", 1.0)])
    assert [broker for _, _, broker, _ in entities] == [SUMMED, SUMMED], "it stays so"
    assert entities.folded == 0


def test_a_counter_of_the_whole_cluster_is_not_summed() -> None:
    entities = EntitySeries(1)
    update(entities, [client("a", 1.0, broker=CLUSTER), client("b", broker=2)])
    assert {broker for _, _, broker, _ in entities} == {CLUSTER, SUMMED}


def test_throttled_client_takes_series_of_unthrottled_client() -> None:
    entities = EntitySeries(1)
    others = [client(name, 10.0)._replace(entity=Entity(client_id=Default.DEFAULT)) for name in "ab"]
    update(entities, others)
    assert charged(entities) == {"a": 10.0, "other": 10.0}
    slowed = client("b", 1.0, throttle_ms=1000)._replace(entity=Entity(client_id=Default.DEFAULT))
    update(entities, [others[0], slowed])
    assert charged(entities) == {"b": 1.0, "other": 20.0}


def test_new_clients_get_series_by_throttle_time_then_by_traffic() -> None:
    entities = EntitySeries(2)
    update(
        entities, [client("idle"), client("busy", 99.0), client("busier", 100.0), client("slowed", 1.0, throttle_ms=5)]
    )
    assert charged(entities) == {"slowed": 1.0, "busier": 100.0, "other": 99.0}
    assert entities.folded == 2


def test_earlier_client_keeps_series_when_busier_client_comes() -> None:
    entities = EntitySeries(1)
    update(entities, [client("first", 1.0), client("idle")])
    update(entities, [client("busy", 1e9), client("first", 1.0)])
    assert charged(entities) == {"first": 2.0, "other": 1e9}


def test_client_with_quota_by_name_gets_series_before_default_clients() -> None:
    entities = EntitySeries(2)
    others = [client(name, 10.0)._replace(entity=Entity(client_id=Default.DEFAULT)) for name in "abc"]
    update(entities, others)
    update(entities, [*others, client("named", 1.0)])
    assert charged(entities) == {"a": 20.0, "named": 1.0, "other": 10.0 + 20.0}
    assert entities.folded == 2
    update(entities, [*others, client("named", 1.0), client("another"), client("third", 5.0)])
    assert charged(entities) == {"named": 2.0, "third": 5.0, "other": 60.0}
    update(entities, others, gone=[client("named", 3.0)])
    update(entities, others)
    assert charged(entities) == {"named": 5.0, "third": 5.0, "other": 120.0}, "they keep their places while they pause"
    update(entities, [client("fourth", 1.0)])
    assert charged(entities) == {"named": 5.0, "fourth": 1.0, "other": 120.0}


def test_clients_that_are_throttled_do_not_take_the_place_of_who_has_a_quota_by_name() -> None:
    entities = EntitySeries(1)
    flood = [client(f"c{number}", 1.0, throttle_ms=9000) for number in range(3)]
    flood = [each._replace(entity=Entity(client_id=Default.DEFAULT)) for each in flood]
    update(entities, [client("named", 1.0), flood[0]])
    update(entities, [client("named", 1.0), *flood])
    assert charged(entities) == {"named": 2.0, "other": 4.0}
    update(entities, flood)
    assert charged(entities) == {"named": 2.0, "other": 7.0}


def test_other_sums_rates_and_keeps_the_highest_ratio() -> None:
    entities = EntitySeries(0)
    update(entities, [client("a", rate=900.0), client("b", rate=300.0)])
    ((names, _, _, other),) = entities
    assert names == OTHER
    assert (other.rate, other.ratio) == (1200.0, 0.9)


def test_an_expired_counter_keeps_its_totals_and_has_no_gauges() -> None:
    entities = EntitySeries(1)
    update(entities, [client("a", 10.0, rate=5.0), client("b", 20.0, rate=5.0)])
    update(entities, [])
    assert charged(entities) == {"b": 20.0, "other": 10.0}
    assert all(series.rate is None for series in by_name(entities).values())


def test_bytes_charged_between_scrapes_add_up_in_series() -> None:
    entities = EntitySeries(1)
    for charged_since in (10.0, 0.0, 4.0):
        update(entities, [client("a", charged_since)])
    assert charged(entities) == {"a": 14.0}


def test_bytes_of_expired_counter_are_added_to_its_series() -> None:
    entities = EntitySeries(1)
    update(entities, [client("a", 10.0)])
    update(entities, [], gone=[client("a", 2.0)])
    assert charged(entities) == {"a": 12.0}
    assert all(series.rate is None for series in by_name(entities).values())
    update(entities, [client("a", 3.0, rate=1.0)], gone=[client("a", 1.0)])
    assert charged(entities) == {"a": 16.0}
    assert by_name(entities)["a"].rate == 1.0


def test_client_gone_before_first_scrape_gets_free_series() -> None:
    entities = EntitySeries(1)
    update(entities, [], gone=[client("a", 10.0), client("b", 2.0)])
    assert charged(entities) == {"a": 10.0, "other": 2.0}
    assert entities.folded == 1


def test_a_place_is_kept_for_the_absent_until_a_newcomer_needs_it() -> None:
    entities = EntitySeries(2)
    update(entities, [client("a", 1.0), client("b", 2.0)])
    update(entities, [client("b")])
    update(entities, [])
    update(entities, [client("c", 3.0)])
    assert charged(entities) == {"b": 2.0, "c": 3.0}, "a was gone for longest"


def test_bytes_counted_as_other_stay_there_after_naming() -> None:
    entities = EntitySeries(1)
    update(entities, [client("a", 50.0), client("b", 10.0)])
    update(entities, [client("b", 5.0)])
    assert charged(entities) == {"b": 5.0, "other": 10.0}


def test_a_client_called_other_is_part_of_other() -> None:
    entities = EntitySeries(10)
    update(entities, [client("other", 3.0)._replace(user="other"), client("a", 1.0)])
    assert charged(entities) == {"a": 1.0, "other": 3.0}


def test_a_client_that_is_only_half_called_other_is_itself() -> None:
    entities = EntitySeries(10)
    update(entities, [client("other", 3.0)])
    assert [names for names, *_ in entities] == [Names("", "other")]


def test_a_limit_of_zero_is_exceeded_by_any_use() -> None:
    entities = EntitySeries(10)
    update(entities, [client("a", rate=1.0)._replace(limit=0.0), client("b")._replace(limit=0.0)])
    assert {name: series.ratio for name, series in by_name(entities).items()} == {"a": float("inf"), "b": 0.0}
