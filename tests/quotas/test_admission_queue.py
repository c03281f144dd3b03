from quotas.admission_queue import KEEPS_MS, AdmissionQueue, Place


class Counter:
    """Lets one go every ``each_ms``."""

    def __init__(self, each_ms: int) -> None:
        self.each_ms = each_ms
        self.free_ms = 0
        self.alarms: list[int] = []
        self.line = AdmissionQueue(self.may_go, lambda _, moment_ms: self.alarms.append(moment_ms))
        self.went: list[tuple[str, int]] = []

    def may_go(self, now_ms: int) -> int:
        return max(self.free_ms, now_ms)


class Guest:
    def __init__(self, counter: Counter, name: str) -> None:
        self.counter = counter
        self.name = name
        self.asked_again = 0

    def join(
        self, now_ms: int, cost: float = 1.0, kept: Place | None = None, client: tuple[str, ...] = ("user",)
    ) -> Place:
        return self.counter.line.join(self, client, cost, now_ms, weight=cost, kept=kept)

    def admitted(self, now_ms: int) -> None:
        self.counter.went.append((self.name, now_ms))
        self.counter.free_ms = now_ms + self.counter.each_ms

    def abort(self) -> None:
        raise AssertionError

    def sent_on(self, now_ms: int) -> None:
        del now_ms
        self.asked_again += 1


def in_debt(each_ms: int = 100) -> Counter:
    counter = Counter(each_ms)
    counter.free_ms = 50
    return counter


def test_queue_admits_one_request_per_debt_in_arrival_order() -> None:
    counter = in_debt()
    for name in "abc":
        Guest(counter, name).join(0)
    assert counter.alarms == [50]
    for now_ms in range(0, 300, 10):
        counter.line.throttle_over(now_ms)
    assert counter.went == [("a", 50), ("b", 150), ("c", 250)]
    assert not counter.line
    assert counter.line.cost_before(("user",)) == 0


def test_request_that_leaves_the_queue_delays_no_other() -> None:
    counter = in_debt()
    places = [Guest(counter, name).join(0, cost=5.0) for name in "abcd"]
    counter.line.leave(places[0], 10)
    counter.line.leave(places[2], 10)
    counter.line.leave(places[2], 10)
    assert (len(counter.line), counter.line.cost_before(("user",))) == (2, 10.0)
    for now_ms in (50, 150, 250):
        counter.line.serve(now_ms)
    assert counter.went == [("b", 50), ("d", 150)]


def test_a_kept_place_is_taken_again_for_a_while() -> None:
    counter = in_debt(each_ms=10_000)
    away = Guest(counter, "away")
    place = away.join(0)
    Guest(counter, "next").join(1)
    counter.line.leave(place, 10)
    place = away.join(20, kept=place)
    counter.line.serve(60)
    assert counter.went == [("away", 60)]
    late = Guest(counter, "late")
    place = late.join(70)
    counter.line.leave(place, 80)
    Guest(counter, "behind").join(90)
    late.join(80 + KEEPS_MS, kept=place)
    for now_ms in (20_000, 40_000, 60_000):
        counter.line.serve(now_ms)
    assert [name for name, _ in counter.went] == ["away", "next", "behind", "late"]


def test_admitted_request_may_queue_the_next_one() -> None:
    counter = Counter(0)
    line = counter.line

    class Bringer(Guest):
        def admitted(self, now_ms: int) -> None:
            super().admitted(now_ms)
            if len(counter.went) < 5:
                self.join(now_ms)
                line.serve(now_ms)

    Bringer(counter, "a").join(0)
    line.serve(0)
    assert [name for name, _ in counter.went] == ["a"] * 5


def test_dissolved_queue_sends_every_waiter_to_ask_again() -> None:
    counter = in_debt()
    guests = [Guest(counter, name) for name in "abc"]
    for guest in guests:
        guest.join(0)
    places = counter.line.dissolve()
    counter.line.leave(places.pop(1), 5)
    for place in [*places, *places]:
        place.throttle_over(10)
    assert [guest.asked_again for guest in guests] == [1, 0, 1]
    assert not counter.line


def test_dead_places_are_not_kept_for_ever() -> None:
    counter = in_debt(each_ms=10**9)
    for number in range(10_000):
        counter.line.leave(Guest(counter, str(number)).join(0), 0)
    assert len(counter.line._all.entries) < 20
