"""``sluice analyze ingest`` that is killed, Java and all, at each of several moments of a batch.

The moments: a first file of rows is in place; one of names; of documents; rejected documents; all is in place; all is
told, and not committed. Each once for every batch: what it has been killed at before is noted in the directory that is
the first argument.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.cli import analyze
from analysis.ingest.job import Ingestion
from analysis.ingest.warehouse import Warehouse
from analysis.spark.folder import Folder

NOTES = Path(sys.argv.pop(1))


def kill_once(moment: str) -> None:
    note = NOTES / moment
    if not note.exists():
        note.touch()
        os.killpg(0, signal.SIGKILL)


def killed_after(function: Callable[..., None], name: Callable[..., str]) -> Callable[..., None]:
    """Do what a method does, and be killed once for each name that its arguments give."""

    def do(*arguments: Any) -> None:
        function(*arguments)
        kill_once(name(*arguments))

    return do


if __name__ == "__main__":
    publish = Ingestion.publish
    batches: list[str] = []

    def begun(ingestion: Ingestion, batch: Any, number: int) -> None:
        batches.append(f"{number}")
        publish(ingestion, batch, number)

    patched: dict[type, dict[str, Callable[..., None]]] = {
        Ingestion: {"publish": killed_after(begun, lambda _, __, number: f"{number}")},
        Warehouse: {"publish": killed_after(Warehouse.publish, lambda *_: f"{batches[-1]} all")},
        Folder: {"move": killed_after(Folder.move, lambda _, __, to: f"{batches[-1]} {to.partition('/')[0]}")},
    }
    for kind, methods in patched.items():
        for method, function in methods.items():
            setattr(kind, method, function)
    analyze(prog_name="sluice analyze")
