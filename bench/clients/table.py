"""The tables of docs/clients.md, made from the results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.clients.cells import AS_DIRECT, NOT_THERE, Cell, Scenario

PAGE: Final = Path(__file__).parents[2] / "docs" / "clients.md"
BEGIN: Final = "<!-- python -m bench.clients --table -->\n"
END: Final = "<!-- end -->"
TITLES: Final = {Scenario.GROUP848: "group (KIP-848)", Scenario.SHARE: "share group", Scenario.LEADER: "leader moved"}


def tables(cells: Sequence[Cell]) -> str:
    """A table for each version of the broker, newest first, and the footnotes of all."""
    notes: list[str] = []
    brokers = sorted({cell.broker for cell in cells}, reverse=True)
    parts = [_table(broker, [cell for cell in cells if cell.broker == broker], notes) for broker in brokers]
    footnotes = "".join(f"{number}. {note}\n" for number, note in enumerate(notes, 1))
    return "\n".join([*parts, footnotes])


def with_tables(page: str, cells: Sequence[Cell]) -> str:
    """The page with what stands between its markers made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables(cells)}\n{END}{after}"


def _table(broker: str, cells: Sequence[Cell], notes: list[str]) -> str:
    columns = [scenario for scenario in Scenario if any(cell.scenario is scenario for cell in cells)]
    rows: dict[tuple[str, str], dict[Scenario, str]] = {}
    for cell in cells:
        rows.setdefault((cell.software, cell.version), {})[cell.scenario] = _shown(cell, notes)
    header = ["client", "version", *(TITLES.get(scenario, scenario) for scenario in columns)]
    body = [[*names, *(row.get(scenario, "") for scenario in columns)] for names, row in rows.items()]
    lines = (f"| {' | '.join(words)} |\n" for words in (header, ["---"] * len(header), *body))
    return f"Brokers {broker}:\n\n{''.join(lines)}"


def _shown(cell: Cell, notes: list[str]) -> str:
    """Cells with the same note share it."""
    verdict = cell.verdict
    if verdict == AS_DIRECT:
        return verdict
    error = cell.direct.get("error", "no records")
    note = f"Does not work without Sluice either: {error}." if verdict == NOT_THERE else f"{verdict}."
    if note not in notes:
        notes.append(note)
    return f"{NOT_THERE if verdict == NOT_THERE else 'differs'} [{notes.index(note) + 1}]"
