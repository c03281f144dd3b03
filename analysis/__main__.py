"""``sluice analyze`` as a program for spark-submit."""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # Python puts a program's own folder first in sys.path. The folder of the packages replaces it, so that they come
    # before any others of their names (docs/decisions/0018).
    home = Path(__file__).resolve().parents[1]
    if not (home / "analysis").is_dir():  # YARN ships this file alone, beside an environment that has the package
        home = import_module("kafka_sluice").HOME
    # With PYTHONSAFEPATH, the first entry is not the program's folder and stays.
    sys.path[: 0 if sys.flags.safe_path else 1] = [str(home)]
    from analysis.cli import analyze

    analyze(prog_name="sluice analyze")
