"""The questions of ``bench.analysis.questions`` by Spark and by DuckDB: one set of answers, two costs."""

import json
import math
import sys
from pathlib import Path
from typing import Final

from bench.analysis.generated import Generated
from bench.analysis.process_tree import Cost, run
from bench.analysis.questions import DUCKDB, SPARK, Answers
from bench.errors import BenchError

QUESTIONS: Final = "questions"
_ROUNDING: Final = 1e-9


def compare(world: Generated, folder: Path, heap: str) -> dict[str, Cost]:
    """Return what each engine needs, the whole process. Raises BenchError where they do not answer the same."""
    costs, answers = {}, {}
    for engine in (SPARK, DUCKDB):
        said = folder / f"{engine}.json"
        command = [sys.executable, "-m", "bench.analysis.questions", engine, str(world.warehouse), heap, str(said)]
        costs[engine] = run(command, folder / f"{engine}.log")
        answers[engine] = json.loads(said.read_text(encoding="utf-8"))
    require_same(answers[SPARK], answers[DUCKDB])
    return costs


def require_same(ours: Answers, theirs: Answers) -> None:
    """Raise BenchError unless they are the same but for rounding."""
    if ours.keys() != theirs.keys():
        raise BenchError(f"Spark answers {sorted(ours)}, DuckDB {sorted(theirs)}")
    wrong = [
        f"{question}: {name} {value:,} of Spark, {theirs[question][name]:,} of DuckDB"
        for question, answer in ours.items()
        for name, value in answer.items()
        if not math.isclose(value, theirs[question][name], rel_tol=_ROUNDING)
    ]
    if wrong:
        raise BenchError("\n".join(["Spark and DuckDB answer differently:", *wrong]))
