"""The contents of gold: ``gold/made/date=….json`` lists a date's hours, and the batches each was made from."""

import json
from typing import NamedTuple

from analysis.spark.folder import Folder

Hours = dict[str, list[str]]
"""The batches of each hour of a date, 00 to 23."""


class Inventory(NamedTuple):
    """A date's gold."""

    hours: Hours
    day: list[str] | None = None
    """The hours that its day tables were made from; None: there are none, or they are outdated."""


def read(folder: Folder, date: str) -> Inventory:
    """Return the contents of ``date=YYYY-MM-DD``."""
    file = _file(date)
    found = json.loads(folder.read(file)) if folder.exists(file) else {}
    return Inventory(found.get("hours", {}), found.get("day"))


def write(folder: Folder, date: str, inventory: Inventory) -> None:
    folder.write(_file(date), json.dumps(inventory._asdict()))


def rename(folder: Folder, date: str, old: dict[str, list[str]], new: str) -> None:
    """Replace batches (``hour=HH``, ``batch=…``) by the one that they were compacted into."""
    inventory = read(folder, date)
    for hour, batches in old.items():
        names = {batch.removeprefix("batch=") for batch in batches}
        before = inventory.hours.get(hour.removeprefix("hour="), [])
        if names <= set(before):
            inventory.hours[hour.removeprefix("hour=")] = sorted({*before, new} - names)
    write(folder, date, inventory)


def _file(date: str) -> str:
    return f"gold/made/{date}.json"
