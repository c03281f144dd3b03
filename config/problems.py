"""What is wrong with a file the operator wrote, and where."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

_MAX_MESSAGE: Final = 300
_MAX_KEY: Final = 100

Steps = tuple[str | int, ...]  # from the top of a file to a value: keys, and places in lists


@dataclass(frozen=True, slots=True)
class Problem:
    """One complaint: ``file:line:column: path.of.field: message; hint``. Line and column count from 1, 0 is none."""

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""
    name: str = field(default="", compare=False)
    """Of a kind of doubt (``quotas.stores.doubts``)."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        field = f"{self.path}: " if self.path else ""
        fix = f"; {self.hint}" if self.hint else ""
        return f"{where}: {field}{self.message}{fix}"


class ConfigError(Exception):
    """A file cannot be used; it carries every problem found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(map(str, self.problems)))


class InvalidValue(ValueError):  # noqa: N818  it is what the value is, and pydantic wants a ValueError
    """A text that a setting cannot take, or with ``of_key`` a key that has no business; the caller adds where.

    ``name``: of what is only doubtful, the kind of doubt.
    """

    def __init__(self, message: str, hint: str = "", *, of_key: bool = False, name: str = "") -> None:
        super().__init__(message)
        self.message = _shortened(message)
        self.hint = _shortened(hint)
        self.of_key = of_key
        self.name = name


def _shortened(said: str) -> str:
    """Return what quotes the file, with an end, and without what would move a cursor."""
    said = without_secrets(said)
    short = said if len(said) <= _MAX_MESSAGE else f"{said[:_MAX_MESSAGE]}…"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in short)


_SECRETS: Final = re.compile(
    # A word is looked at once, from its beginning: from each of its letters would be quadratic.
    r"""(?P<before>//)[^\s/@'"]+@ | (?<![^\s/@'"])(?=[^\s/@'"]*:)[^\s/@'"]+@
    | (?P<name>(?:password|passwd|secret|token|jaas\.config)\s*=\s*) (?:"[^"]*" | '[^']*' | [^\s,;\]}]+)""",
    re.VERBOSE | re.IGNORECASE,
)


def without_secrets(said: str) -> str:
    """Return a text without what may be a secret in it: a user with a password in front of a host, ``password=…``."""
    return _SECRETS.sub(lambda found: f"{found['name']}…" if found["name"] else f"{found['before'] or ''}…@", said)


_VARIABLE: Final = re.compile(r"\$[{(]|\$[A-Za-z_]|\{\{")
NO_VARIABLES: Final = "no variables are expanded: write the value itself"


def holds_a_variable(text: str) -> bool:
    """Whether ``text`` was meant to be filled in by somebody: ``${NAME}``, ``$NAME``, ``$(NAME)`` or ``{{ name }}``."""
    return _VARIABLE.search(text) is not None


class explained:  # noqa: N801  used as a function; a class is cheaper, and a quota file needs 100,000 of them
    """Give an InvalidValue raised within the fix that fits, where ``written`` holds a variable."""

    __slots__ = ("written",)

    def __init__(self, written: object) -> None:
        self.written = written

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidValue) and isinstance(self.written, str) and holds_a_variable(self.written):
            error.hint = NO_VARIABLES


class InvalidValues(ValueError):  # noqa: N818  as above
    """Several of them in one value, each with the steps from that value to where it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Steps, InvalidValue]] = []

    def add(self, steps: Steps, message: str, hint: str = "", *, of_key: bool = False) -> None:
        self.found.append((steps, InvalidValue(message, hint, of_key=of_key)))

    def at(self, *steps: str | int) -> "_Kept":
        """Keep an InvalidValue raised within, so that the next one is found too."""
        return _Kept(self.found, steps)

    def raise_if_any(self) -> None:
        if self.found:
            raise self


class _Kept:
    """Keeps an InvalidValue with its steps."""

    __slots__ = ("found", "steps")

    def __init__(self, found: list[tuple[Steps, InvalidValue]], steps: Steps) -> None:
        self.found = found
        self.steps = steps

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, InvalidValue):
            return False
        self.found.append((self.steps, error))
        return True


def _shown(key: str) -> str:
    """Return a key as a message quotes it: with an end, and without a secret in it."""
    key = without_secrets(key)
    key = key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}…"
    return key if key.isprintable() else ascii(key)


def field_path(steps: Iterable[str | int]) -> str:
    """``["listeners", 0, "bind"]`` as ``listeners[0].bind``."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += ("." if path else "") + _shown(step)
    return path


def suggestion(wrong: str, known: Sequence[str]) -> str:
    """Return the fix for a word that is none of ``known``: the nearest of them, or all."""
    near = difflib.get_close_matches(wrong, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
