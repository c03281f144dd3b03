"""Faults put into the program where it is not looking for any: the places are read from its own source."""

import ast
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from proxy.runtime import faults, tasks

SOURCES: Final = Path(tasks.__file__).parents[1]

# Where each of them takes the name of the place.
_NAMED: Final = {
    "spawn": 1,
    "every": 2,
    "attempt": 0,
    "later": 1,
    "on_readable": 1,
    "on_signal": 1,
    "contained": 0,
    "report": 0,
    "run": 0,  # of FileWatch
}
_ROUNDS: Final = ("_repeat", "_collect", "_pump")
"""What goes on for ever and attempts each round: it is the round that fails."""


class SabotagedError(Exception):
    """Nothing of the kind that anybody expects."""


def fail(*_: object) -> None:
    raise SabotagedError


@cache
def sources() -> list[tuple[str, ast.Module]]:
    """Return every module of the program, by its path below ``proxy/``."""
    return [
        (path.relative_to(SOURCES).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(SOURCES.rglob("*.py"))
    ]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the last part of the name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, node


def places(*by: str) -> set[str]:
    """Return the names of all places that are handed to these functions of ``tasks`` and ``faults``."""
    found = set()
    for _, tree in sources():
        for name, call in calls(tree):
            if name in by and len(call.args) > _NAMED[name]:
                place = call.args[_NAMED[name]]
                if isinstance(place, ast.Constant) and isinstance(place.value, str):
                    found.add(place.value)
    return found


class Sabotage:
    """The first call at each of ``wheres`` fails, whichever module makes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *wheres: str) -> None:
        self._left = set(wheres)
        self._before = dict(faults.counts)
        self.came_to_an_end: set[str] = set()
        """The jobs that did, after their fault."""
        for name, real, broken in (
            ("contained", faults.contained, self._contained),
            ("attempt", tasks.attempt, self._attempt),
            ("spawn", tasks.spawn, self._spawn),
        ):
            self._real = getattr(self, "_real", {}) | {name: real}
            for module in _modules():
                if getattr(module, name, None) is real:
                    monkeypatch.setattr(module, name, broken)

    @property
    def met(self) -> bool:
        """Whether every fault was met."""
        return not self._left

    def counted(self, where: str) -> int:
        return faults.counts[where] - self._before.get(where, 0)

    def _now(self, where: str) -> bool:
        if where not in self._left:
            return False
        self._left.remove(where)
        return True

    def _contained(self, where: str, call: Callable[..., Any], *args: Any, **otherwise: Any) -> Any:
        return self._real["contained"](where, fail if self._now(where) else call, *args, **otherwise)

    async def _attempt(self, where: str, job: tasks.Job, within_s: float | None = None) -> bool:
        well: bool = await self._real["attempt"](where, fail if self._now(where) else job, within_s)
        if well:
            self.came_to_an_end.add(where)
        return well

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str, *at_end: Callable[..., object]) -> Any:
        fails = getattr(work, "__name__", "") not in _ROUNDS and self._now(name)
        return self._real["spawn"](_instead_of(work) if fails else work, name, *at_end)


async def _instead_of(work: Coroutine[Any, Any, Any]) -> None:
    work.close()
    raise SabotagedError


def _modules() -> Iterator[ModuleType]:
    return (module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "proxy")
