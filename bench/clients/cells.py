"""The outcomes of a client's scenario at a broker and through Sluice, and whether both are the same."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parents[1] / "results" / "clients.json"
MOST_RATIO: Final = 1.5  # rates that differ by no more than this factor are the same
AS_DIRECT: Final = "as direct"
NOT_THERE: Final = "–"  # noqa: RUF001  as in the other tables of the page
Outcome = Mapping[str, Any]


Scenario = StrEnum("Scenario", "PRODUCE CONSUME GROUP GROUP848 SHARE TRANSACTION ADMIN STREAMS QUOTA LEADER")


@dataclass(frozen=True, slots=True)
class Cell:
    software: str
    version: str
    broker: str  # Kafka's version
    scenario: Scenario
    direct: Outcome
    through: Outcome

    @property
    def key(self) -> tuple[str, str, str, Scenario]:
        return self.software, self.version, self.broker, self.scenario

    @property
    def verdict(self) -> str:
        """`AS_DIRECT`, `NOT_THERE`, or the differences in words."""
        if not _is_anything(self.direct) and not _is_anything(self.through):
            return NOT_THERE
        return "; ".join(_differences(self.direct, self.through)) or AS_DIRECT


def load(file: Path = RESULTS) -> list[Cell]:
    if not file.exists():
        return []
    found = json.loads(file.read_text("utf-8"))
    return [Cell(**{**each, "scenario": Scenario(each["scenario"])}) for each in found]


def save(cells: Sequence[Cell], file: Path = RESULTS) -> None:
    """A cell takes the place of an older one; each has a line of its own."""
    merged = {cell.key: cell for cell in (*load(file), *cells)}
    lines = [json.dumps(asdict(merged[key]), ensure_ascii=False, sort_keys=True) for key in sorted(merged)]
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


def _is_anything(outcome: Outcome) -> bool:
    counts = (outcome.get(name) for name in ("records", "readable", "committed"))
    return any(counts) or "ok" in outcome.get("steps", {}).values()


def _differences(direct: Outcome, through: Outcome) -> list[str]:
    """Compare each field; the steps of `admin` are fields of their own."""
    one, other = ({**outcome, **outcome.get("steps", {})} for outcome in (direct, through))
    fields = [name for name in {**one, **other} if name != "steps"]
    return [
        f"{name}: {one.get(name)} direct, {other.get(name)} through Sluice"
        for name in fields
        if not _same(name, one, other)
    ]


def _same(name: str, one: Outcome, other: Outcome) -> bool:
    if name == "bytes_per_s" and one.get(name) and other.get(name):
        rates: list[float] = [one[name], other[name]]
        return max(rates) <= MOST_RATIO * min(rates)
    return bool(one.get(name) == other.get(name))
