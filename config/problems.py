"""Problems of a file that the operator wrote, with their places."""

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
    """A problem: ``file:line:column: setting: message; hint``. Line and column count from 1; 0 is unknown."""

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""
    name: str = field(default="", compare=False)
    """The name of a warning (``quotas.stores.likely_mistakes``)."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        field = f"{self.path}: " if self.path else ""
        fix = f"; {self.hint}" if self.hint else ""
        return f"{where}: {field}{self.message}{fix}"


class ConfigError(Exception):
    """A file is invalid; carries every problem found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(map(str, self.problems)))


class InvalidValue(ValueError):  # noqa: N818  the name describes the value; pydantic wants a ValueError
    """A text that a setting does not accept, or with ``of_key`` a key that is not allowed; the caller adds the place.

    ``name``: of a warning, its name.
    """

    def __init__(self, message: str, hint: str = "", *, of_key: bool = False, name: str = "") -> None:
        super().__init__(message)
        self.message = _shortened(message)
        self.hint = _shortened(hint)
        self.of_key = of_key
        self.name = name


def _shortened(said: str) -> str:
    """Return a message, which may quote the file, shortened and without control characters."""
    said = without_secrets(said)
    short = said if len(said) <= _MAX_MESSAGE else f"{said[:_MAX_MESSAGE]}…"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in short)


_SECRETS: Final = re.compile(
    # Matching starts at the beginning of a word only: from each of its letters it would be quadratic.
    r"""(?P<before>//)[^\s/@'"]+@ | (?<![^\s/@'"])(?=[^\s/@'"]*:)[^\s/@'"]+@
    | (?P<name>(?:password|passwd|secret|token|jaas\.config)\s*=\s*) (?:"[^"]*" | '[^']*' | [^\s,;\]}]+)""",
    re.VERBOSE | re.IGNORECASE,
)


def without_secrets(said: str) -> str:
    """Return a text with possible secrets replaced: a user and password before a host, ``password=…``."""
    return _SECRETS.sub(lambda found: f"{found['name']}…" if found["name"] else f"{found['before'] or ''}…@", said)


_VARIABLE: Final = re.compile(r"\$[{(]|\$[A-Za-z_]|\{\{")
NO_VARIABLES: Final = "no variables are expanded: write the value itself"


def holds_a_variable(text: str) -> bool:
    """Whether ``text`` has a placeholder: ``${NAME}``, ``$NAME``, ``$(NAME)`` or ``{{ name }}``."""
    return _VARIABLE.search(text) is not None


class explained:  # noqa: N801  used as a function; a class is cheaper, and a quota file needs 100,000 of them
    """Replaces the fix of an InvalidValue raised within, if ``written`` has a placeholder."""

    __slots__ = ("written",)

    def __init__(self, written: object) -> None:
        self.written = written

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidValue) and isinstance(self.written, str) and holds_a_variable(self.written):
            error.hint = NO_VARIABLES


class InvalidValues(ValueError):  # noqa: N818  as above
    """Several InvalidValue of one value, each with the steps to its place in that value."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Steps, InvalidValue]] = []

    def add(self, steps: Steps, message: str, hint: str = "", *, of_key: bool = False) -> None:
        self.found.append((steps, InvalidValue(message, hint, of_key=of_key)))

    def require_known(self, at: Steps, written: Iterable[str], known: Sequence[str]) -> None:
        """Add each key that is not ``known``."""
        for key in written:
            if key not in known:
                self.add((*at, key), "is unknown here", suggestion(key, known), of_key=True)

    def at(self, *steps: str | int) -> "_Collecting":
        """Collect an InvalidValue, or several, raised within, so that further ones are found too."""
        return _Collecting(self.found, steps)

    def raise_if_any(self) -> None:
        if self.found:
            raise self


class _Collecting:
    """Collects InvalidValues with their steps."""

    __slots__ = ("found", "steps")

    def __init__(self, found: list[tuple[Steps, InvalidValue]], steps: Steps) -> None:
        self.found = found
        self.steps = steps

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, InvalidValues):
            self.found += [((*self.steps, *below), invalid) for below, invalid in error.found]
        elif isinstance(error, InvalidValue):
            self.found.append((self.steps, error))
        return isinstance(error, InvalidValue | InvalidValues)


def _shown(key: str) -> str:
    """Return a key as quoted in a message: shortened, and without secrets."""
    key = without_secrets(key)
    key = key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}…"
    return key if key.isprintable() else ascii(key)


def field_path(steps: Iterable[str | int]) -> str:
    """Return ``listeners[0].bind`` for ``["listeners", 0, "bind"]``."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += ("." if path else "") + _shown(step)
    return path


def suggestion(wrong: str, known: Sequence[str]) -> str:
    """Return the fix for an unknown word: the nearest of ``known``, or all of them."""
    near = difflib.get_close_matches(wrong, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
