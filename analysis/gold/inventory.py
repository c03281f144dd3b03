"""The contents of gold: ``gold/made/date=….json`` names the version of each hour and day that is in force.

A version is a folder of its own in each table. Writing the file in one step makes it visible in all of them.
"""

import json

from analysis.spark.folder import Folder
from analysis.warehouse import Inventory


def read(folder: Folder, date: str) -> Inventory:
    """Return the contents of ``date=YYYY-MM-DD``."""
    return Inventory.read(folder.read(place(date))) if folder.exists(place(date)) else Inventory({})


def text(date: str, inventory: Inventory) -> str:
    """Return the content of the file of ``date=YYYY-MM-DD``."""
    hours = {hour: version._asdict() for hour, version in inventory.hours.items()}
    day = inventory.day and inventory.day._asdict()
    return json.dumps({"date": date.removeprefix("date="), "hours": hours, "day": day})


def compacted(inventory: Inventory, old: dict[str, list[str]], new: str) -> Inventory:
    """Replace batches (``hour=HH``, ``batch=…``) by the one that they were compacted into."""
    hours = dict(inventory.hours)
    for hour, batches in old.items():
        names = {batch.removeprefix("batch=") for batch in batches}
        before = hours.get(hour.removeprefix("hour="))
        if before is not None and names <= set(before.sources):
            sources = sorted({*before.sources, new} - names)
            hours[hour.removeprefix("hour=")] = before._replace(sources=sources)
    return inventory._replace(hours=hours)


def place(date: str) -> str:
    """Return the file of a date."""
    return f"gold/made/{date}.json"
