"""Which hours and days of gold there are, and of which batches each hour was made: ``gold/made/date=….json``."""

import json
from typing import NamedTuple

from analysis.spark.folder import Folder

Hours = dict[str, list[str]]
"""Of a date: the batches of each hour, 00 to 23."""


class Made(NamedTuple):
    """A date's gold."""

    hours: Hours
    day: list[str] | None = None
    """The hours that its day tables were made of; None: there are none, or they are of what was before."""


def read(folder: Folder, date: str) -> Made:
    """Return what is made of ``date=YYYY-MM-DD``."""
    file = _file(date)
    found = json.loads(folder.read(file)) if folder.exists(file) else {}
    return Made(found.get("hours", {}), found.get("day"))


def write(folder: Folder, date: str, made: Made) -> None:
    """Note it."""
    folder.write(_file(date), json.dumps(made._asdict()))


def rename(folder: Folder, date: str, old: dict[str, list[str]], new: str) -> None:
    """Note that batches of hours (``hour=HH``, ``batch=…``) became one: what was made of them is made of it."""
    made = read(folder, date)
    for hour, batches in old.items():
        names = {batch.removeprefix("batch=") for batch in batches}
        before = made.hours.get(hour.removeprefix("hour="), [])
        if names <= set(before):
            made.hours[hour.removeprefix("hour=")] = sorted({*before, new} - names)
    write(folder, date, made)


def _file(date: str) -> str:
    return f"gold/made/{date}.json"
