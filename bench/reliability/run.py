"""One fault, or several at once, struck at all clients; the verdict is a figure: `name: measured / mark: PASS|FAIL`."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.reliability.clients import Reader, Topics, Writers
from bench.reliability.faults import Fault
from bench.reliability.ledger import Mode, Verdict, verdict
from bench.reliability.stage import Stage
from tests.harness.polling import wait_until

BEGIN_S: Final = 60.0
GO_ON_S: Final = 150.0
"""Clients wait up to a minute for an answer that will not come, and up to as long again."""
MARK: Final = "nothing lost, changed, moved, reordered; exactly once where asked; each goes on"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    measured: str
    mark: str
    result: str
    """PASS, FAIL, or `not run, because …`."""
    acked: int = 0
    details: Sequence[str] = field(default_factory=tuple)

    def __str__(self) -> str:
        return f"{self.name}: {self.measured} / {self.mark}: {self.result}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Load:
    families: tuple[str, ...]
    rate: float
    """Records a second of each family in each mode."""


class Strikes:
    """Faults under way, whose generators are resumed when they are due; closing heals all, the last one first."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._running: dict[str, tuple[float, Iterator[float]]] = {}

    def begin(self, fault: Fault, rng: random.Random) -> None:
        self._running[fault.id] = (time.monotonic(), fault.strike(self._stage, rng))

    def end(self, name: str) -> None:
        _, strike = self._running.pop(name)
        strike.close()  # type: ignore[attr-defined]

    def go_on(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < end_s:
            for name, (due_s, strike) in list(self._running.items()):
                if now_s >= due_s:
                    self._running[name] = (time.monotonic() + next(strike), strike)
            time.sleep(0.02)

    def __enter__(self) -> "Strikes":
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self._running)):
            self.end(name)


class Trial:
    """Clients at work on fresh topics, as a context manager; `verdict` ends them and compares."""

    def __init__(self, stage: Stage, name: str, load: Load) -> None:
        self._stage = stage
        self._name = name
        self._load = load
        self.problems: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> "Trial":
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="sluice-ledger-")))
        self._topics: Topics = self._stage.create_topics(self._name)
        self._through = Reader(self._stage.bootstrap, self._topics)
        self._stack.callback(self._through.close)
        self._writers = self._stack.enter_context(
            Writers(self._load.families, self._stage.bootstrap, self._topics, self._load.rate, folder)
        )
        self._stage.writers = self._writers.programs
        wait_until(lambda: all(self._writers.acked().values()), "each client has begun", BEGIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def goes_on(self) -> bool:
        """Whether each client has records acknowledged from now on, after a while."""
        before = self._writers.acked()

        def waiting() -> list[str]:
            return [
                f"{family} {mode}"
                for (family, mode), count in self._writers.acked().items()
                if count <= before[family, mode]
            ]

        try:
            wait_until(waiting, "each goes on", GO_ON_S, equals=[])
        except TimeoutError:
            self.problems.append(f"do not go on within {GO_ON_S:g} s: {', '.join(waiting())}")
            return False
        return True

    def verdict(self) -> tuple[Verdict, Counter[str]]:
        """And how many records clients gave up, by reason."""
        self._writers.finish()
        ends = self._stage.ends(self._topics)
        through = self._through.finish(ends)
        around = Reader(self._stage.cluster.bootstrap, self._topics).finish(ends)
        accounts = {mode: self._writers.account(mode) for mode in self._topics}
        found = [verdict(mode, accounts[mode], around[mode], through[mode]) for mode in self._topics]
        given_up = sum((account.given_up for account in accounts.values()), start=Counter())
        return reduce(Verdict.__add__, found), given_up


def strike(stage: Stage, fault: Fault, load: Load, seconds: float, seed: int) -> Figure:
    """The fault strikes for that long; then each client must go on, and the ledger be whole."""
    name = f"{fault.id} {fault.what}"
    if reason := fault.missing():
        return Figure(name, "–", MARK, f"not run, because {reason}")  # noqa: RUF001  as in the tables of docs
    with Trial(stage, f"{fault.id.lower()}-{seed}-{time.monotonic_ns()}", load) as trial:
        with Strikes(stage) as strikes:
            strikes.begin(fault, random.Random(f"{seed} {fault.id}"))
            strikes.go_on(seconds)
        trial.goes_on()
        found, given_up = trial.verdict()
    return figure(name, found, given_up, trial.problems, fault.struck)


def figure(name: str, found: Verdict, given_up: Counter[str], problems: Sequence[str], struck: int) -> Figure:
    wrong = [f"{count} {problem}" for problem, count in found.problems.items()]
    more = [
        *([f"{found.repeated:,} repeated, where the mode allows it"] if found.repeated else []),
        *([f"{sum(given_up.values()):,} given up by clients ({', '.join(given_up)})"] if given_up else []),
    ]
    said = [f"{found.acked:,} acknowledged", f"struck {struck:,} times", *(wrong or ["0 wrong"]), *more, *problems]
    has_passed = not wrong and not problems and struck > 0
    return Figure(name, "; ".join(said), MARK, "PASS" if has_passed else "FAIL", found.acked, found.examples)
