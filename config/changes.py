"""The settings that differ between two configurations: names only, no values."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import TypeGuard

from config.forms import Section
from config.problems import Steps, field_path
from config.settings import Listener, Settings


def changed_settings(old: Settings, new: Settings) -> list[str]:
    """Return each changed setting as the path of its key: ``listeners[0].bind``.

    A new listener is ``listeners[1]``, a removed one has its name instead of a number.
    """
    return [field_path(steps) for steps in _differing((), old, new)]


def _differing(at: Steps, old: object, new: object) -> Iterator[Steps]:
    if isinstance(old, Section) and isinstance(new, Section):
        for name, field in type(new).model_fields.items():
            yield from _differing((*at, field.alias or name), getattr(old, name), getattr(new, name))
    elif _are_listeners(old) and _are_listeners(new):
        yield from _by_name(at, old, new)
    elif _are_sections(old) and _are_sections(new):
        for index, (one, other) in enumerate(zip_longest(old, new)):
            yield from _differing((*at, index), one, other)
    elif old != new:
        yield at


def _by_name(at: Steps, old: tuple[Listener, ...], new: tuple[Listener, ...]) -> Iterator[Steps]:
    """Compare listeners by name, whatever their order in the file."""
    before = {listener.name: listener for listener in old}
    for index, listener in enumerate(new):
        if listener.name in before:
            yield from _differing((*at, index), before.pop(listener.name), listener)
        else:
            yield (*at, index)
    yield from ((*at, name) for name in before)


def _are_listeners(value: object) -> TypeGuard[tuple[Listener, ...]]:
    return isinstance(value, tuple) and all(isinstance(each, Listener) for each in value)


def _are_sections(value: object) -> TypeGuard[tuple[Section, ...]]:
    return isinstance(value, tuple) and all(isinstance(each, Section) for each in value)
