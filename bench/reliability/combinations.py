"""Up to five faults at once: Hypothesis chooses which, when each begins and ends, and for how long all go on."""

import random
from contextlib import ExitStack
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from bench.reliability import faults, process_faults
from bench.reliability.faults import Fault
from bench.reliability.figures import Figure, Result
from bench.reliability.run import MARK, Load, Strikes, Trial, figure
from bench.reliability.stage import Stage

NAME: Final = "X1"
WHAT: Final = "up to five faults at once"
MOST: Final = 5
STEPS: Final = 10
KINDS: Final[tuple[type[Fault], ...]] = (
    faults.ResetMidRequest,
    faults.FinMidRequest,
    faults.HalfClose,
    faults.OneByteSegments,
    faults.Latency,
    faults.Bandwidth,
    faults.ResetMidAnswer,
    faults.FinMidAnswer,
    faults.SilentBroker,
    faults.RefusedBroker,
    faults.SplitAnswers,
    faults.JoinedAnswers,
    faults.CorruptSize,
    process_faults.StoppedClient,
    process_faults.StoppedBroker,
    process_faults.Terminated,
    process_faults.Killed,
    process_faults.Reloaded,
    process_faults.StoppedWorker,
)
"""Faults that do not need the others to be away."""


def combine(stage: Stage, clients: Load, examples: int, of_seed: int) -> Figure:
    figures: list[Figure] = []

    class Combination(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.stack = ExitStack()
            self.trial = self.stack.enter_context(Trial(stage, NAME, clients))
            self.strikes = self.stack.enter_context(Strikes(stage))
            self.begun: list[Fault] = []
            self.active: list[Fault] = []

        @precondition(lambda self: len(self.active) < MOST)
        @rule(kind=st.sampled_from(KINDS), number=st.integers(0, 2**32), seconds=st.floats(1.0, 5.0))
        def begin(self, kind: type[Fault], number: int, seconds: float) -> None:
            if not any(isinstance(each, kind) for each in self.active):
                fault = kind()
                self.strikes.begin(fault, random.Random(number))
                self.active.append(fault)
                self.begun.append(fault)
            self.strikes.go_on(seconds)

        @precondition(lambda self: self.active)
        @rule(which=st.integers(0, MOST), seconds=st.floats(0.0, 3.0))
        def end(self, which: int, seconds: float) -> None:
            self.strikes.end(self.active.pop(which % len(self.active)))
            self.strikes.go_on(seconds)

        def teardown(self) -> None:
            with self.stack:
                for fault in reversed(self.active):
                    self.strikes.end(fault)
                if self.begun:
                    what = ", ".join(each.id for each in self.begun)
                    figures.append(figure(NAME, what, self.begun, self.trial.outcome(), of_seed))
                    print(figures[-1], flush=True)

    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(of_seed)(Combination), settings=chosen)
    failed = [each.what for each in figures if each.result == Result.FAIL]
    acked = sum(each.acked for each in figures)
    measured = f"{len(figures)} combinations, {acked:,} acknowledged, failed: {'; '.join(failed) or 'none'}"
    details = [line for each in figures for line in each.details]
    return Figure(NAME, WHAT, measured, MARK, Result.FAIL if failed else Result.PASS, of_seed, acked, details=details)
