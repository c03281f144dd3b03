"""`python -m bench.reliability.soak`: two instances under mixed load for hours, a fault a minute, watched all the time.

Clients are those of the faults, half of them over TLS. Each minute other limits and modes are written, one fault
strikes for a quarter of it, and the rate of a greedy client is measured from ten seconds after the fault to the end
of the minute. The first instance is never restarted: the slope of its memory is measured.
"""

import argparse
import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from math import sqrt
from statistics import linear_regression
from typing import Final, Self

import psutil

from bench.reliability import process_faults
from bench.reliability.clients import ALL_FAMILIES
from bench.reliability.combinations import KINDS
from bench.reliability.faults import Fault
from bench.reliability.figures import Figure, Result, save, write_page
from bench.reliability.run import MARK, Load, Strikes, Trial, figure
from bench.reliability.stage import GREEDY, GREEDY_BYTES_PER_S, NODE_IDS, Stage
from tests.harness.clients.kinds import AIOKAFKA
from tests.harness.clients.tasks import Produce
from tests.harness.measure import LogMeter
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess

MINUTE_S: Final = 60.0
FAULT_S: Final = 15.0
AFTER_FAULT_S: Final = 10.0
ROUND_MINUTES: Final = 5
"""Then clients begin on fresh topics: a ledger of hours would not fit into memory."""
LOOK_S: Final = 5.0
LOOKED_AT: Final = ("/metrics", "/", "/api/v1/clients", "/api/v1/brokers?all=1")
LIMITS: Final = (20_000, 200_000)
MODES: Final = ("enforce", "shadow")
MOST_DEVIATION: Final = 0.03
MOST_MIB_PER_H: Final = 2.0
MOST_LEAKED_PER_H: Final = 20.0
FAULTS_IN_LOG: Final = ("internal error", "never retrieved", "Traceback")
LEAST_H: Final = 1.0
"""In less, caches that fill look like a leak."""
WARM_UP: Final = 0.2
"""The part of the samples that is left out: caches fill."""
OF_ONE_INSTANCE: Final = (process_faults.Terminated, process_faults.Killed, process_faults.StoppedWorker)


@dataclass(frozen=True, slots=True)
class Sample:
    at_h: float
    mib: float
    descriptors: float


class Watcher:
    """Looks at each instance as operators do, and at the processes of the first one, as a context manager."""

    def __init__(self, stage: Stage) -> None:
        self.samples: list[Sample] = []
        self._stage = stage
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher")

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            for instance in self._stage.instances:
                for path in LOOKED_AT:
                    instance.get(path)
            with suppress(psutil.NoSuchProcess):  # a worker was replaced meanwhile
                parent = psutil.Process(self._stage.instances[0].pid)
                processes = [parent, *parent.children(recursive=True)]
                mib = sum(each.memory_full_info().pss for each in processes) / (1 << 20)
                descriptors = sum(each.num_fds() for each in processes)
                self.samples.append(Sample(time.monotonic() / 3600, mib, descriptors))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def slope(samples: Sequence[Sample], values: Sequence[float]) -> tuple[float, float]:
    """The increase per hour, and its upper 95 % bound."""
    hours = [each.at_h for each in samples]
    fitted, first = linear_regression(hours, values)
    middle = sum(hours) / len(hours)
    errors = sum((value - first - fitted * hour) ** 2 for hour, value in zip(hours, values, strict=True))
    spread = sum((hour - middle) ** 2 for hour in hours)
    return fitted, fitted + 1.96 * sqrt(errors / (len(hours) - 2) / spread)


def soak(stage: Stage, clients: Load, hours: float, seed: int) -> list[Figure]:
    rng = random.Random(seed)
    rates: list[float] = []
    figures: list[Figure] = []
    stage.cluster.create_topic(GREEDY, leader=NODE_IDS[0])
    end_s = time.monotonic() + hours * 3600
    with ExitStack() as stack:
        watcher = stack.enter_context(Watcher(stage))
        meter = stack.enter_context(LogMeter(stage.cluster.log_folder(GREEDY)))
        greedy = Produce(bootstrap=stage.bootstrap, client_id=GREEDY, topic=GREEDY, duration_s=hours * 3600 + 600)
        stack.enter_context(AIOKAFKA.run(greedy))
        while time.monotonic() < end_s:
            mine: list[Fault] = []
            with Trial(stage, "soak", clients) as trial:
                for _ in range(ROUND_MINUTES):
                    mine.append(_minute(stage, rng))
                    until_s = time.monotonic()
                    rates.append(_rate(meter, until_s - MINUTE_S + FAULT_S + AFTER_FAULT_S, until_s))
                    print(f"{mine[-1].id} {mine[-1].what}: greedy at {rates[-1]:.3f} of its quota", flush=True)
                figures.append(figure("A11", ", ".join(each.id for each in mine), mine, trial.outcome(), seed))
            print(figures[-1], flush=True)
    return verdicts(watcher.samples, rates, figures, stage)


def _minute(stage: Stage, rng: random.Random) -> Fault:
    begin_s = time.monotonic()
    quotas = stage.quotas(lambda: f"producer_byte_rate: {rng.randrange(*LIMITS)}, mode: {rng.choice(MODES)}")
    for instance in stage.instances:
        instance.write_quotas(quotas)
    fault = rng.choice(KINDS)()
    stage.sluice = stage.instances[1] if isinstance(fault, OF_ONE_INSTANCE) else rng.choice(stage.instances)
    with Strikes(stage) as strikes:
        strikes.begin(fault, random.Random(rng.random()))
        strikes.go_on(FAULT_S)
    time.sleep(max(begin_s + MINUTE_S - time.monotonic(), 0.0))
    return fault


def _rate(meter: LogMeter, from_s: float, to_s: float) -> float:
    """The greedy client's rate, against its quota; 0 where nothing could be measured."""
    with suppress(ValueError):
        return meter.series.rate_by_bursts(from_s, to_s) / GREEDY_BYTES_PER_S
    return 0.0


def verdicts(watched: Sequence[Sample], rates: Sequence[float], rounds: Sequence[Figure], stage: Stage) -> list[Figure]:
    """The figures of A11."""
    samples = watched[int(len(watched) * WARM_UP) :]
    growing, most_mib = slope(samples, [each.mib for each in samples])
    leaking, most_leaked = slope(samples, [each.descriptors for each in samples])
    hours = samples[-1].at_h - samples[0].at_h
    far = [each for each in rates if abs(each - 1) > MOST_DEVIATION]
    failed = [each.what for each in rounds if each.result == Result.FAIL]
    acked = sum(each.acked for each in rounds)
    lines = [line for each in stage.instances for line in each.output().splitlines()]
    errors = [line for line in lines if any(words in line for words in FAULTS_IN_LOG)]
    whole = f"{acked:,} acknowledged in {len(rounds)} rounds; failed: {'; '.join(failed) or 'none'}"
    memory = f"{growing:+.2f} MiB/h, 95 % bound {most_mib:.2f}, of {samples[-1].mib:.0f} MiB, in {hours:.2f} h"
    descriptors = f"{leaking:+.2f}/h, 95 % bound {most_leaked:.2f}, of {samples[-1].descriptors:.0f}, in {hours:.2f} h"
    measured = f"{len(rates) - len(far)} of {len(rates)} minutes, from {min(rates):.3f} to {max(rates):.3f}"
    short = f"{hours:.2f} h are too short to tell a leak from caches that fill" if hours < LEAST_H else ""
    has_grown, has_leaked = most_mib >= MOST_MIB_PER_H, most_leaked >= MOST_LEAKED_PER_H
    grown, leaked = (Result.NOT_RUN if short else passed(not is_so) for is_so in (has_grown, has_leaked))
    return [
        Figure("A11-ledger", "soak: ledger", whole, MARK, passed(not failed), acked=acked),
        Figure("A11-memory", "soak: an instance's memory (PSS)", memory, "< 2 MiB/h", grown, because=short),
        Figure("A11-descriptors", "soak: descriptors", descriptors, "< 20/h", leaked, because=short),
        Figure("A11-rates", "soak: a greedy client's rate", measured, "all within 3 % of the quota", passed(not far)),
        Figure("A11-log", "soak: faults in the log", str(len(errors)), "0", passed(not errors), details=errors[:5]),
    ]


def passed(is_so: bool) -> Result:
    return Result.PASS if is_so else Result.FAIL


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reliability.soak")
    parser.add_argument("--hours", type=float, default=2.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=50.0, help="records a second of each client in each mode")
    given = parser.parse_args()
    clients = Load(ALL_FAMILIES, given.rate)
    with Stage(clients.families, instances=2, over_tls=ALL_FAMILIES[::2]) as stage:
        wait_until(lambda: all(map(_owns, stage.instances)), "both instances own brokers")
        figures = soak(stage, clients, given.hours, given.seed)
    print(*figures, sep="\n")
    save(figures)
    write_page()
    return 1 if any(each.result == Result.FAIL for each in figures) else 0


def _owns(instance: SluiceProcess) -> bool:
    return instance.metrics().value("sluice_owned_brokers") > 0


if __name__ == "__main__":
    sys.exit(main())
