"""Which settings of two configurations differ: their names, and no value of theirs."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import TypeGuard

from config.forms import Section
from config.problems import Steps, field_path
from config.settings import Settings


def changed_settings(old: Settings, new: Settings) -> list[str]:
    """Return each setting that is another, as the path of its key: ``listeners[0].bind``."""
    return [field_path(steps) for steps in _differing((), old, new)]


def _differing(at: Steps, old: object, new: object) -> Iterator[Steps]:
    if isinstance(old, Section) and isinstance(new, Section):
        for name, field in type(new).model_fields.items():
            yield from _differing((*at, field.alias or name), getattr(old, name), getattr(new, name))
    elif _are_sections(old) and _are_sections(new):
        for index, (one, other) in enumerate(zip_longest(old, new)):
            yield from _differing((*at, index), one, other)
    elif old != new:
        yield at


def _are_sections(value: object) -> TypeGuard[tuple[Section, ...]]:
    return isinstance(value, tuple) and all(isinstance(each, Section) for each in value)
