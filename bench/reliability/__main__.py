"""`python -m bench.reliability`: a line a figure, kept in bench/results and shown in docs/reliability.md."""

import argparse
import sys

from bench.reliability import faults, process_faults
from bench.reliability.clients import ALL_FAMILIES
from bench.reliability.combinations import NAME, combine
from bench.reliability.faults import Fault
from bench.reliability.figures import Result, load, save, sum_of, write_page
from bench.reliability.run import Load, strike
from bench.reliability.stage import Stage


def all_faults() -> list[type[Fault]]:
    classes = [each for module in (faults, process_faults) for each in vars(module).values() if isinstance(each, type)]
    named = {each.id: each for each in classes if issubclass(each, Fault) and "id" in vars(each)}
    return list(named.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reliability")
    parser.add_argument("--only", default="", help=f"F9,F14,…, {NAME}; all by default")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each fault strikes, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", default=",".join(ALL_FAMILIES))
    parser.add_argument("--rate", type=float, default=400.0, help="records a second of each client in each mode")
    parser.add_argument("--combinations", type=int, default=20, help="how many of up to five faults")
    given = parser.parse_args()
    only = set(given.only.split(",")) - {""}
    chosen = [each for each in all_faults() if not only or only & {each.id, each.id.partition("-")[0]}]
    clients = Load(tuple(given.families.split(",")), given.rate)
    figures = []
    with Stage(clients.families) as stage:
        for fault in chosen:
            figures.append(strike(stage, fault(), clients, given.seconds, given.seed))
            print(figures[-1], flush=True)
            save(figures)
        if not only or NAME in only:
            figures.append(combine(stage, clients, given.combinations, given.seed))
            print(figures[-1], flush=True)
            save(figures)
    save([sum_of(load().values())])
    write_page()
    return 1 if any(each.result == Result.FAIL for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
