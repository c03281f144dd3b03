from math import isnan

from proxy.usage.history import POINTS, History, Minute, Series
from proxy.usage.meter import ClientNames


def named(name: str) -> ClientNames:
    return ClientNames("PLAIN", "alice", name)


def minute(bytes_in: int, throttled_ms: int = 0, ratio: float | None = None) -> Minute:
    made = Minute()
    made.bytes_in, made.throttled_ms, made.ratio = bytes_in, throttled_ms, ratio
    return made


def note(history: History, at_s: float, **minutes: Minute) -> None:
    named_minutes = {named(name): each for name, each in minutes.items()}
    history.add(history.choose(named_minutes), named_minutes, at_s)


def points(history: History, name: str) -> Series:
    return next(series for names, _, series in history if names == named(name))


def test_points_are_the_oldest_first() -> None:
    history = History()
    note(history, 0, a=minute(600, 30_000, 1.5))
    note(history, 60, b=minute(60))
    assert points(history, "a").at_s == [0, 60]
    assert list(points(history, "a").bytes_in_per_s) == [10, 0]
    assert list(points(history, "a").throttled_share) == [0.5, 0]
    assert points(history, "a").ratio[0] == 1.5
    assert isnan(points(history, "a").ratio[1])
    assert (points(history, "b").at_s, list(points(history, "b").bytes_in_per_s)) == ([60], [1])


def test_usage_history_keeps_the_last_hour() -> None:
    history = History()
    for number in range(POINTS + 10):
        note(history, 60 * number, a=minute(60 * number))
    kept = points(history, "a")
    assert (len(kept.at_s), kept.at_s[0], kept.at_s[-1]) == (POINTS, 600, 60 * (POINTS + 9))
    assert list(kept.bytes_in_per_s) == list(range(10, POINTS + 10))


def test_usage_history_keeps_busiest_and_throttled_clients() -> None:
    history = History(2)
    note(history, 0, small=minute(6000), big=minute(60_000), middle=minute(30_000))
    assert {names.client_id for names, _, _ in history} == {"big", "middle"}
    note(history, 60, small=minute(60, 1000), big=minute(60_000), middle=minute(30_000))
    assert {names.client_id for names, _, _ in history} == {"big", "small"}
    note(history, 120, **{f"c{number}": minute(1000) for number in range(100)})
    assert {names.client_id for names, _, _ in history} == {"big", "small"}


def test_a_client_that_is_gone_is_forgotten() -> None:
    history = History()
    note(history, 0, a=minute(60_000))
    for number in range(1, 100):
        note(history, 60 * number)
    assert not list(history)
