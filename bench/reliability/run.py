"""Clients at work while faults strike, and the figure that comes of it."""

import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from bench.reliability.clients import Reader, Writers
from bench.reliability.faults import Fault
from bench.reliability.figures import Figure, Result
from bench.reliability.ledger import REORDERED_WITHOUT_IDEMPOTENCE, Mode, Verdict, verdict
from bench.reliability.stage import Stage
from tests.harness.polling import wait_until

BEGIN_S: Final = 60.0
GO_ON_S: Final = 150.0
"""A client may wait for a minute for an answer that will not come, and as long again."""
TURN_S: Final = 0.02
MARK: Final = "all stored as acknowledged, exactly once where asked; each client goes on"


@dataclass(frozen=True, slots=True)
class Load:
    families: tuple[str, ...]
    rate: float
    """Records a second of each family in each mode."""


class Strikes:
    """Faults under way, each resumed when it is due; closing heals all, the last one first."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._due_s: dict[Fault, float] = {}
        self._running: dict[Fault, Generator[float, None, None]] = {}

    def begin(self, fault: Fault, rng: random.Random) -> None:
        self._running[fault] = fault.strike(self._stage, rng)
        self._due_s[fault] = 0.0

    def end(self, fault: Fault) -> None:
        self._running.pop(fault).close()

    def go_on(self, seconds: float) -> None:
        """For that long, or until all have struck as often as they do."""
        end_s = time.monotonic() + seconds
        while self._running and time.monotonic() < end_s:
            for fault, strike in list(self._running.items()):
                if time.monotonic() >= self._due_s[fault]:
                    try:
                        self._due_s[fault] = next(strike) + time.monotonic()
                    except StopIteration:
                        del self._running[fault]
            time.sleep(TURN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fault in reversed(list(self._running)):
            self.end(fault)


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict
    given_up: Counter[str]
    """Records that clients gave up, by reason."""
    longest_pause_s: float
    stuck: Sequence[str]
    """Clients that had nothing acknowledged after the faults, or did not end."""


class Trial:
    """All clients at work on fresh topics, as a context manager; `outcome` ends them and compares."""

    def __init__(self, stage: Stage, name: str, load: Load) -> None:
        self._stage = stage
        self._name = name
        self._load = load
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="sluice-ledger-")))
            self._topics = self._stage.create_topics(f"{self._name}-{time.monotonic_ns()}")
            stack.callback(self._stage.delete_topics, self._topics)
            self._through = stack.enter_context(closing(Reader(self._stage.bootstrap, self._topics)))
            ways = {family: self._stage.way_of(family) for family in self._load.families}
            self._writers = stack.enter_context(Writers(ways, self._topics, self._load.rate, folder))
            self._stage.writers = self._writers.programs
            wait_until(self._writers.acked, "each client has begun", BEGIN_S, is_so=lambda acked: all(acked.values()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def outcome(self) -> Outcome:
        stuck = [*self._stuck(), *self._writers.finish()]
        ends = self._stage.ends(self._topics)
        through = self._through.finish(ends)
        with closing(Reader(self._stage.cluster.bootstrap, self._topics)) as reader:
            around = reader.finish(ends)
        accounts = {mode: self._writers.account(mode) for mode in self._topics}
        found = [verdict(mode, accounts[mode], around[mode], through[mode]) for mode in self._topics]
        given_up: Counter[str] = sum((each.given_up for each in accounts.values()), start=Counter())
        return Outcome(reduce(Verdict.__add__, found), given_up, accounts[Mode.ALL].longest_pause_s, stuck)

    def _stuck(self) -> list[str]:
        before = self._writers.acked()

        def waiting() -> list[str]:
            now = self._writers.acked()
            return [" ".join(client) for client, count in now.items() if count <= before[client]]

        try:
            return wait_until(waiting, "", GO_ON_S, equals=[])
        except TimeoutError:
            return waiting()


def strike(stage: Stage, fault: Fault, load: Load, seconds: float, seed: int) -> Figure:
    """The fault strikes for that long; then each client must go on, and the ledger be whole."""
    if reason := fault.missing():
        return Figure(fault.id, fault.what, "", MARK, Result.NOT_RUN, seed, because=reason)
    families = tuple(family for family in load.families if family not in fault.without)
    with Trial(stage, fault.id, replace(load, families=families)) as trial:
        with Strikes(stage) as strikes:
            strikes.begin(fault, random.Random(f"{seed} {fault.id}"))
            strikes.go_on(fault.most_s if fault.times else max(seconds, fault.least_s))
        outcome = trial.outcome()
    return figure(fault.id, fault.what, [fault], outcome, seed)


def figure(name: str, what: str, faults: Sequence[Fault], outcome: Outcome, seed: int) -> Figure:
    found = outcome.verdict
    allowed = {REORDERED_WITHOUT_IDEMPOTENCE} if any(fault.moves_leaders for fault in faults) else set()
    wrong = [f"{count:,} {problem}" for problem, count in found.problems.items() if problem not in allowed]
    if outcome.stuck:
        wrong.append(f"stuck: {', '.join(outcome.stuck)}")
    if found.repeated and not all(fault.allows_repetition for fault in faults):
        wrong.append(f"{found.repeated:,} repeated")
    if outcome.longest_pause_s > min(fault.longest_pause_s for fault in faults):
        wrong.append("a pause too long")
    struck = sum(fault.struck for fault in faults)
    measured = [
        f"{found.acked:,} acknowledged",
        f"struck {struck:,} times",
        *(wrong or ["0 wrong"]),
        f"{found.repeated:,} repeated where allowed",
        f"{outcome.given_up.total():,} given up by clients",
        f"longest pause {outcome.longest_pause_s:.1f} s",
    ]
    result = Result.FAIL if wrong or not struck else Result.PASS
    details = [*found.examples, *(f"given up: {count} {reason}" for reason, count in outcome.given_up.items())]
    return Figure(name, what, ", ".join(measured), MARK, result, seed, found.acked, details=details)
