"""What is shown by name, what is summed up, and that no counter goes backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.entity_series import OTHER, EntitySeries, Names, Series
from quotas.engine import Usage
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from tests.proxy.snapshots import PRODUCE


def client(name: str, charged: float = 0.0, *, throttle_ms: int = 0, rate: float = 0.0, broker: int = 1) -> Usage:
    return PRODUCE._replace(
        client_id=name,
        entity=Entity(client_id=name),
        charged_total=charged,
        throttle_ms_total=throttle_ms,
        throttled_total=throttle_ms // 1000,
        rate=rate,
        broker=broker,
    )


def by_name(entities: EntitySeries) -> dict[str, Series]:
    return {names.client_id: series for names, _, _, series in entities}


def charged(entities: EntitySeries) -> dict[str, float]:
    return {name: series.totals.charged for name, series in by_name(entities).items()}


def test_a_client_within_the_places_has_a_series_of_its_own() -> None:
    entities = EntitySeries(2)
    entities.update([client("a", 10.0, throttle_ms=2000, rate=250.0)])
    ((names, kind, broker, series),) = entities
    assert (names, kind, broker) == (Names("", "a"), QuotaKind.PRODUCER_BYTE_RATE, 1)
    assert (series.limit, series.rate, series.ratio) == (1000.0, 250.0, 0.25)
    assert series.totals == (10.0, 2, 2000)
    assert entities.folded == 0


def test_one_entity_takes_one_place_whatever_its_kinds_and_brokers() -> None:
    entities = EntitySeries(1)
    fetch = client("a", 7.0)._replace(kind=QuotaKind.CONSUMER_BYTE_RATE)
    entities.update([client("a", 1.0), client("a", 2.0, broker=2), fetch])
    assert [(names.client_id, kind, broker, series.totals.charged) for names, kind, broker, series in entities] == [
        ("a", QuotaKind.PRODUCER_BYTE_RATE, 1, 1.0),
        ("a", QuotaKind.PRODUCER_BYTE_RATE, 2, 2.0),
        ("a", QuotaKind.CONSUMER_BYTE_RATE, 1, 7.0),
    ]


def test_of_those_that_come_together_the_most_throttled_and_then_the_busiest_are_shown() -> None:
    entities = EntitySeries(2)
    entities.update(
        [client("idle"), client("busy", 99.0), client("busier", 100.0), client("slowed", 1.0, throttle_ms=5)]
    )
    assert charged(entities) == {"slowed": 1.0, "busier": 100.0, "other": 99.0}
    assert entities.folded == 2


def test_who_came_first_keeps_the_place_from_a_busier_one() -> None:
    entities = EntitySeries(1)
    entities.update([client("first", 1.0)])
    entities.update([client("busy", 1e9), client("first", 2.0)])
    assert charged(entities) == {"first": 2.0, "other": 1e9}


def test_other_sums_rates_and_keeps_the_highest_ratio() -> None:
    entities = EntitySeries(0)
    entities.update([client("a", rate=900.0), client("b", rate=300.0)])
    ((names, _, _, other),) = entities
    assert names == OTHER
    assert (other.rate, other.ratio) == (1200.0, 0.9)


def test_an_expired_counter_keeps_its_totals_and_has_no_gauges() -> None:
    entities = EntitySeries(1)
    entities.update([client("a", 10.0, rate=5.0), client("b", 20.0, rate=5.0)])
    entities.update([])
    assert charged(entities) == {"b": 20.0, "other": 10.0}
    assert not any(series.live for series in by_name(entities).values())


def test_a_counter_made_anew_adds_to_the_totals() -> None:
    entities = EntitySeries(1)
    entities.update([client("a", 10.0)])
    entities.update([client("a", 4.0)])
    assert charged(entities) == {"a": 14.0}


def test_a_counter_that_expired_and_goes_on_adds_what_it_grew_by() -> None:
    entities = EntitySeries(1)
    for usage in ([client("a", 10.0)], [], [], [client("a", 12.0)]):
        entities.update(usage)
    assert charged(entities) == {"a": 12.0}


def test_a_counter_that_expired_and_begins_anew_adds_all_it_has() -> None:
    entities = EntitySeries(1)
    for usage in ([client("a", 10.0)], [], [client("a", 4.0)]):
        entities.update(usage)
    assert charged(entities) == {"a": 14.0}


def test_what_is_remembered_of_counters_that_are_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.entity_series.MAX_REMEMBERED", 2)
    entities = EntitySeries(0)
    entities.update([client(name, 10.0) for name in "abc"])
    entities.update([])
    entities.update([client(name, 11.0) for name in "abc"])
    assert charged(entities) == {"other": 30.0 + 11.0 + 1.0 + 1.0}, "the first one was forgotten"


def test_a_place_is_kept_for_the_absent_until_a_newcomer_needs_it() -> None:
    entities = EntitySeries(2)
    entities.update([client("a", 1.0), client("b", 2.0)])
    entities.update([client("b", 2.0)])
    entities.update([])
    entities.update([client("c", 3.0)])
    assert charged(entities) == {"b": 2.0, "c": 3.0}, "a was gone for longest"


def test_what_was_counted_as_other_is_not_counted_again_by_name() -> None:
    entities = EntitySeries(1)
    entities.update([client("a", 50.0), client("b", 10.0)])
    entities.update([client("b", 15.0)])
    assert charged(entities) == {"b": 5.0, "other": 10.0}


def test_a_client_called_other_is_part_of_other() -> None:
    entities = EntitySeries(10)
    entities.update([client("other", 3.0)._replace(user="other"), client("a", 1.0)])
    assert charged(entities) == {"a": 1.0, "other": 3.0}


def test_a_client_that_is_only_half_called_other_is_itself() -> None:
    entities = EntitySeries(10)
    entities.update([client("other", 3.0)])
    assert [names for names, *_ in entities] == [Names("", "other")]


def test_a_limit_of_zero_is_exceeded_by_any_use() -> None:
    entities = EntitySeries(10)
    entities.update([client("a", rate=1.0)._replace(limit=0.0), client("b")._replace(limit=0.0)])
    assert {name: series.ratio for name, series in by_name(entities).items()} == {"a": float("inf"), "b": 0.0}


Step = dict[str, tuple[int, bool]]
steps = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 100), st.booleans())), max_size=12)


@given(steps, st.integers(0, 4))
def test_no_series_goes_backwards_and_nothing_is_lost(history: list[Step], max_entities: int) -> None:
    """Each step says who is live, by how much their counter grows, and whether it was made anew before."""
    entities = EntitySeries(max_entities)
    counters: dict[str, int] = {}
    used = shown = 0
    before: dict[str, float] = {}
    for step in history:
        for name, (grown, anew) in step.items():
            # Also after a pause a counter may go on; one that was made anew and is not smaller cannot be told.
            total = counters.get(name, 0)
            counters[name] = grown if anew and grown < total else total + grown
        used += sum(grown for grown, _ in step.values())
        entities.update([client(name, counters[name]) for name in step])
        after = charged(entities)
        assert len(after.keys() - {"other"}) <= max_entities
        for name in before.keys() & after.keys():
            assert after[name] >= before[name]
        shown += sum(int(after[name] - before.get(name, 0.0)) for name in after)
        before = after
    assert shown == used
