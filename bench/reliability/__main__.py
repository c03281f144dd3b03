"""`python -m bench.reliability [--only F9,F14] [--seconds 30] [--seed 1] [--families java,aiokafka]`."""

import argparse
import sys

from bench.reliability import faults, process_faults
from bench.reliability.clients import ALL_FAMILIES
from bench.reliability.faults import Fault
from bench.reliability.figures import Figure, Result
from bench.reliability.run import Load, strike
from bench.reliability.stage import Stage


def all_faults() -> list[type[Fault]]:
    found = [
        each
        for module in (faults, process_faults)
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Fault)
        and hasattr(each, "id")
        and each.__module__ == module.__name__
    ]
    return sorted(found, key=lambda each: (each.id[0] != "F", int(each.id[1:].partition("-")[0])))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reliability")
    parser.add_argument("--only", default="", help="F9,F14,…; all by default")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each fault strikes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", default=",".join(ALL_FAMILIES))
    parser.add_argument("--rate", type=float, default=400.0, help="records a second of each client in each mode")
    given = parser.parse_args()
    only = [word for word in given.only.split(",") if word]
    chosen = [each for each in all_faults() if not only or each.id in only or each.id.partition("-")[0] in only]
    load = Load(tuple(given.families.split(",")), given.rate)
    figures: list[Figure] = []
    with Stage(load.families) as stage:
        for fault in chosen:
            figures.append(strike(stage, fault(), load, given.seconds, given.seed))
            print(figures[-1], flush=True)
    return 1 if any(each.result == Result.FAIL for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
