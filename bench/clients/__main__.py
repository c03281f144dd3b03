"""`python -m bench.clients [--only SOFTWARE] [--scenarios LIST] [--brokers 3.9.1,4.3.1] [--table]`."""

import argparse
import sys

from bench.clients import cells, table
from bench.clients.cells import Scenario
from bench.clients.run import run
from bench.clients.software import ALL
from tests.harness.jars import BROKER_VERSIONS


def main() -> int:
    """0; 1 if a cell is not as direct."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--only", help="names of software, separated by commas")
    parser.add_argument("--scenarios", default=",".join(Scenario), help="separated by commas")
    parser.add_argument("--brokers", default=",".join(BROKER_VERSIONS), help="versions, separated by commas")
    parser.add_argument("--table", action="store_true", help="run nothing; rewrite docs/clients.md from the results")
    asked = parser.parse_args()
    chosen = [each for each in ALL if not asked.only or each.name in asked.only.split(",")]
    scenarios = {Scenario(word) for word in asked.scenarios.split(",")}
    differing = 0
    for broker in [] if asked.table else asked.brokers.split(","):
        for cell in run(broker, chosen, scenarios):
            cells.save([cell])
            print(*cell.key, cell.verdict, flush=True)
            differing += cell.verdict not in {cells.AS_DIRECT, cells.NOT_THERE}
    table.PAGE.write_text(table.with_tables(table.PAGE.read_text("utf-8"), cells.load()), "utf-8")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
