"""Made-up days of a broker, of which it is known who delayed whom: clients' bytes and delays in moments of 10 s."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import own_use
from analysis.metrics.coincidence import Others
from analysis.table.arrays import Floats

HOUR: Final = 360
DAY: Final = 24 * HOUR
MOMENT_MS: Final = 10_000
CULPRIT: Final = "culprit"
SECOND: Final = "second"
FOLLOWER: Final = "follower"

Flags = NDArray[np.bool_]


@dataclass
class Case:
    """[moment] of each client; ``active`` is whether it is in records at all."""

    moments: int
    bytes_: dict[str, Floats] = field(default_factory=dict)
    active: dict[str, Flags] = field(default_factory=dict)
    muted_ms: dict[str, Floats] = field(default_factory=dict)
    counter: dict[str, str] = field(default_factory=dict)
    """Of those that share one: which."""

    def client(self, name: str, bytes_: Floats, active: Flags) -> None:
        self.active[name] = active
        self.bytes_[name] = np.where(active, bytes_, 0)
        self.muted_ms[name] = np.zeros(self.moments)

    def delay(self, name: str, when: Flags, ms: Floats) -> None:
        """Delay a client where it is active."""
        self.muted_ms[name] += np.where(when & self.active[name], ms, 0)

    def others(self, name: str) -> Others:
        """Return the same as ``moments`` makes of rows: all of use is under the kind that mutes."""
        block = np.arange(self.moments) // HOUR
        delay, expected = np.zeros(self.moments), np.zeros(self.moments)
        for other, there in self.active.items():
            if other == name:
                continue
            moment, active = np.flatnonzero(there), np.full(int(there.sum()), float(MOMENT_MS))
            muted = self.muted_ms[other][moment]
            delay[moment] += muted
            if name in self.counter and self.counter[name] == self.counter.get(other):
                expected[moment] += own_use.mean(block[moment], muted, active)
            else:
                used = self.bytes_[other][moment]
                expected[moment] += own_use.usual(moment, block[moment], used, muted, active)
        return Others(delay, expected, block)

    def peak(self, name: str) -> Flags:
        bytes_ = self.bytes_[name]
        found: Flags = (bytes_ > 0) & (bytes_ >= 2 * bytes_.mean()) & (bytes_ >= 0.02 * sum(self.bytes_.values()))
        return found


def waves(chance: np.random.Generator, moments: int, every: float, lasts: float) -> Flags:
    """Return moments in waves: one begins every so many moments, and lasts so many, on average."""
    found = np.zeros(moments, dtype=bool)
    at = chance.exponential(every)
    while at < moments:
        length = 1 + chance.exponential(lasts)
        found[int(at) : int(at + length)] = True
        at += length + chance.exponential(every)
    return found


def _busy(chance: np.random.Generator, moments: int, victims: int = 6) -> Case:
    """Clients that are there all the time, more or less, with little to move; some of them more by day."""
    case = Case(moments)
    day = np.arange(moments) % DAY // HOUR
    for number in range(victims):
        share = np.where((day >= 8) & (day < 18), 0.95, 0.5 if number % 2 else 0.9)
        case.client(f"victim-{number}", chance.gamma(2, 500, moments), chance.random(moments) < share)
    return case


def _own_delays(chance: np.random.Generator, case: Case, names: list[str], every: float = 700) -> None:
    """Each is held at its own quota now and then: in waves of its own, that nobody else has to do with."""
    for name in names:
        case.delay(name, waves(chance, case.moments, every, 8), chance.uniform(500, 9000, case.moments))


def _bursts(chance: np.random.Generator, case: Case, name: str, every: float, lasts: float) -> Flags:
    when = waves(chance, case.moments, every, lasts)
    case.client(name, chance.uniform(0.8e6, 1.2e6, case.moments), when)
    return when


def _harm(chance: np.random.Generator, case: Case, when: Flags, victims: list[str], lag: int = 0) -> None:
    """Delay victims, most of them and most of the time, in moments, or ``lag`` after them."""
    late = np.roll(when, lag)
    for name in victims:
        hit = late & (chance.random(case.moments) < 0.7)
        case.delay(name, hit, chance.uniform(500, 8000, case.moments))


def culprit(chance: np.random.Generator, moments: int = DAY) -> Case:
    """Bursts at random times, which delay others at once; two others burst as often and harm nobody."""
    case = _busy(chance, moments)
    victims = list(case.active)
    _own_delays(chance, case, victims)
    _harm(chance, case, _bursts(chance, case, CULPRIT, 90, 4), victims)
    for number in range(2):
        _bursts(chance, case, f"bystander-{number}", 90, 4)
    return case


def late_culprit(chance: np.random.Generator, moments: int = DAY) -> Case:
    """The same, and the delay comes 20 s after."""
    case = _busy(chance, moments)
    victims = list(case.active)
    _own_delays(chance, case, victims)
    _harm(chance, case, _bursts(chance, case, CULPRIT, 120, 1), victims, lag=2)
    return case


def followed(chance: np.random.Generator, moments: int = DAY) -> Case:
    """One that delays others, one that mostly peaks when it does, and one that harms others at times of its own."""
    case = _busy(chance, moments)
    victims = list(case.active)
    when = _bursts(chance, case, CULPRIT, 90, 4)
    _harm(chance, case, when, victims)
    begins = np.flatnonzero(when & ~np.roll(when, 1))
    missed = np.isin(
        np.maximum.accumulate(np.where(np.isin(np.arange(moments), begins), np.arange(moments), 0)), begins[::8]
    )
    follows = (when & ~missed) | waves(chance, moments, 400, 4)
    case.client(FOLLOWER, chance.uniform(0.8e6, 1.2e6, moments), follows)
    _harm(chance, case, _bursts(chance, case, SECOND, 250, 4), victims)
    return case


def batch(chance: np.random.Generator, moments: int = 2 * DAY) -> Case:
    """Five clients that come together at night, and one that bursts at any time and delays whoever is there.

    Nearly all delay is at night, because those that are delayed most are there only then.
    """
    case = _busy(chance, moments)
    late = _night(chance, case, 5)
    when = _bursts(chance, case, CULPRIT, 60, 4)
    _harm(chance, case, when, [f"batch-{number}" for number in range(5)])
    _harm(chance, case, when & late, list(case.active)[:2])
    return case


def batch_with_culprit_in_it(chance: np.random.Generator, moments: int = 2 * DAY) -> Case:
    """The one that delays is there only while the batch is: all six are active together with the delays."""
    case = _busy(chance, moments)
    late = _night(chance, case, 5)
    when = waves(chance, moments, 25, 4) & late
    case.client(CULPRIT, chance.uniform(0.8e6, 1.2e6, moments), when)
    _harm(chance, case, when, [name for name in case.active if name != CULPRIT])
    return case


def batch_at_its_own_quotas(chance: np.random.Generator, moments: int = 2 * DAY) -> Case:
    """Five clients that come together at night, each held at its own quota all along; others now and then."""
    case = _busy(chance, moments)
    _night(chance, case, 5)
    _own_delays(chance, case, [name for name in case.active if name.startswith("victim")])
    for number in range(5):
        _own_delays(chance, case, [f"batch-{number}"], every=10)
    return case


def _night(chance: np.random.Generator, case: Case, clients: int) -> Flags:
    """Add clients of a nightly batch; it begins and ends at other times each night, and each a little later."""
    late = np.zeros(case.moments, dtype=bool)
    for day in range(-(-case.moments // DAY)):
        begin = day * DAY + HOUR + int(chance.integers(0, 300))
        late[begin : begin + 700 + int(chance.integers(0, 200))] = True
    for number in range(clients):
        when = late.copy()
        when[: int(chance.integers(0, 12))] = False
        case.client(
            f"batch-{number}", chance.uniform(3e6, 5e6, case.moments), np.roll(when, int(chance.integers(0, 6)))
        )
    return late


def background(chance: np.random.Generator, members: int = 2) -> Case:
    """A night of bursts of a batch, each of it held at its own quota, that sends heartbeats all day; and the culprit.

    The culprit bursts at random, at other hours, and harms two that are there all the time.
    """
    case = _busy(chance, DAY, 2)
    victims = list(case.active)
    when = waves(chance, DAY, 300, 10) & (np.arange(DAY) >= 6 * HOUR)
    case.client(CULPRIT, np.where(when, 5e8, 2e7), np.ones(DAY, dtype=bool))
    _harm(chance, case, when, victims)
    bursts = (np.arange(DAY) // 24 % 2 == 0) & (np.arange(DAY) >= HOUR) & (np.arange(DAY) < 5 * HOUR)
    for number in range(members):
        case.client(f"batch-{number}", np.where(bursts, 6e8, 2e4), np.ones(DAY, dtype=bool))
        case.delay(f"batch-{number}", bursts & (chance.random(DAY) < 0.8), np.full(DAY, 9000.0))
    return case


def background_of_ten(chance: np.random.Generator) -> Case:
    return background(chance, 10)


def held_as_kafka_does(chance: np.random.Generator, members: int = 6) -> Case:
    """The same, but the batch wants more than its quotas for a while, and is muted for as long as Kafka says.

    Some of it works half as much all day as it may: it is busy, and not held.
    """
    case = background(chance, 0)
    for number in range(members):
        wants = np.zeros(DAY * 10)
        for begin in range(HOUR * 10, 5 * HOUR * 10, 480):
            late = int(chance.integers(0, 8))
            wants[begin + late : begin + late + 240] = chance.uniform(1.2, 4)
        wants = np.maximum(wants, chance.choice([0.0004, 0.1, 0.5])) * 5e6 * chance.uniform(0.7, 1.3, len(wants))
        used, muted_ms = held(wants, 5e6)
        case.client(f"batch-{number}", used, (used > 0) | (muted_ms > 0))
        case.muted_ms[f"batch-{number}"] += muted_ms
    return case


def held(wants: Floats, limit: float) -> tuple[Floats, Floats]:
    """Return [moment] what a client uses that ``wants`` so much in each second, and for how long it is muted.

    As ClientQuotaManager: 11 samples of a second, and throttled for as long as it takes to be back at the limit.
    """
    used, muted_ms = np.zeros(len(wants)), np.zeros(len(wants))
    window = [0.0] * 11
    until = 0.0
    for second, want in enumerate(wants.tolist()):
        free = min(max(second + 1 - until, 0.0), 1.0)
        used[second] = window[second % 11] = want * free
        muted_ms[second] = 1000 * (1 - free)
        if free and sum(window) > 11 * limit:
            until = second + 1 + sum(window) / limit - 11
    return used.reshape(-1, 10).sum(axis=1), muted_ms.reshape(-1, 10).sum(axis=1)


def one_counter(chance: np.random.Generator, members: int = 10) -> Case:
    """A batch with one quota for all of it; and one that bursts when it does, held at a quota of its own."""
    case = background(chance, members)
    for number in range(members):
        case.counter[f"batch-{number}"] = "batch"
    case.client("beside", case.bytes_["batch-0"], case.active["batch-0"])
    case.delay("beside", case.bytes_["beside"] > 1e8, np.full(DAY, 5000.0))
    return case


def kept_from_its_share(chance: np.random.Generator, moments: int = DAY) -> Case:
    """The culprit uses what is for all of a group; the others are muted then, and use less for it."""
    case = _busy(chance, moments)
    victims = list(case.active)
    when = _bursts(chance, case, CULPRIT, 90, 4)
    case.counter = dict.fromkeys((CULPRIT, *victims), "group")
    _harm(chance, case, when, victims)
    for name in victims:
        case.bytes_[name] *= 1 - case.muted_ms[name] / 10_000
    for number in range(2):
        _bursts(chance, case, f"bystander-{number}", 90, 4)
    return case


def always_there(chance: np.random.Generator, moments: int = DAY) -> Case:
    """One that moves as much all the time, while others are delayed in waves."""
    case = _busy(chance, moments)
    _own_delays(chance, case, list(case.active), every=200)
    case.client("steady", chance.uniform(0.9e6, 1.1e6, moments), np.ones(moments, dtype=bool))
    return case


def once(chance: np.random.Generator, moments: int = DAY) -> Case:
    """One that peaks once, just when there is most delay."""
    case = _busy(chance, moments)
    when = np.zeros(moments, dtype=bool)
    when[(at := int(chance.integers(100, moments - 100))) : at + 4] = True
    case.client("once", np.full(moments, 5e6), when)
    _harm(chance, case, when, list(case.active)[:6])
    return case


def no_cause(chance: np.random.Generator, moments: int = DAY) -> Case:
    """Waves of delay that hit all at once, more by day, and one that bursts more by day: by chance alone."""
    case = _busy(chance, moments)
    by_day = (np.arange(moments) % DAY >= 8 * HOUR) & (np.arange(moments) % DAY < 18 * HOUR)
    when = waves(chance, moments, 80, 5) & by_day
    case.client("daily", chance.uniform(0.8e6, 1.2e6, moments), when)
    _harm(chance, case, waves(chance, moments, 60, 10) & by_day, [name for name in case.active if name != "daily"])
    return case


def no_delay(chance: np.random.Generator, moments: int = DAY) -> Case:
    case = _busy(chance, moments)
    _bursts(chance, case, "loud", 90, 4)
    return case


def twenty_by_chance(chance: np.random.Generator, moments: int = DAY) -> Case:
    """Twenty that burst, short or long, and delays in waves, short or long, that none of them has to do with."""
    case = _busy(chance, moments)
    for number in range(20):
        lasts = float(chance.choice([1, 3, 10, 40, 100]))
        _bursts(chance, case, f"loud-{number}", 20 * lasts, lasts)
    lasts = float(chance.choice([2, 6, 20]))
    victims = [name for name in case.active if name.startswith("victim")]
    _harm(chance, case, waves(chance, moments, 10 * lasts, lasts), victims)
    return case


Maker = Callable[[np.random.Generator], Case]
