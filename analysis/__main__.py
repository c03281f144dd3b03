"""``sluice analyze`` as a program of spark-submit."""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # A program's own folder stands first in sys.path: here that is within the package. Its packages go there instead,
    # before any others of their names (docs/decisions/0018).
    home = Path(__file__).resolve().parents[1]
    if not (home / "analysis").is_dir():  # YARN ships this file alone, beside an environment that has the package
        home = import_module("kafka_sluice").HOME
    # Where no program's folder is put there (PYTHONSAFEPATH), the first one is of libraries.
    sys.path[: 0 if sys.flags.safe_path else 1] = [str(home)]
    from analysis.cli import analyze

    analyze(prog_name="sluice analyze")
