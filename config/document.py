"""YAML files as text with positions.

Scalars keep their text from the file: YAML 1.1 reads ``no`` as false, ``010`` as 8 and silently keeps the last of two
equal keys, and a quota must not depend on that. The type of the setting decides what a text means. The parser's events
are read, not ``compose``: that is five times slower, and a file of 200,000 ``[`` crashes the process.
"""

import codecs
import difflib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from yaml.events import MappingEndEvent, ScalarEvent

from config.files import NotAFileError, read_file
from config.nodes import Mapping, Mark, Node, Plain, Scalar, Sequence
from config.problems import NO_VARIABLES, ConfigError, InvalidValue, Problem, Steps, field_path, holds_a_variable

MAX_DEPTH: Final = 32
_NEAR: Final = 0.8  # quota.yaml and quotas.yml match, other names that end in .yaml do not

_SPELLED_OUT = "write the value out where it is used"
_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))


@dataclass(frozen=True, slots=True)
class Document:
    """A file's mapping, and its non-fatal problems: duplicate keys (the first one counts)."""

    file: str
    root: Mapping
    problems: tuple[Problem, ...]

    def problem(self, steps: Steps, invalid: InvalidValue) -> Problem:
        """Return a problem at ``steps``, with the position of the value.

        The position is that of the key if it has no value or the key is wrong, and that of the parent if the key is
        missing.
        """
        node: Node = self.root
        place = mark = self.root.mark
        for step in steps:
            place = place if node is None else mark
            if isinstance(node, Mapping) and isinstance(step, str) and step in node:
                place, mark = node.places(step)
                node = node[step]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node):
                mark = node.place(step)
                node = node[step]
            else:
                node = None
        if node is not None and not invalid.of_key:
            place = mark
        where = self.file, place.line + 1, place.column + 1, field_path(steps)
        return Problem(*where, invalid.message, invalid.hint, invalid.name)


def read_document(path: Path, to_write: str = "write `key: value` lines") -> Document:
    """Read a file; raise ConfigError if it is not YAML, or uses unsupported features of YAML.

    ``to_write`` is the fix for an empty file, or one that is not a mapping.
    """
    return parse_document(str(path), read_text(path), to_write)


def parse_document(file: str, text: str, to_write: str) -> Document:
    """Parse text that was read from ``file``, as ``read_document`` does."""
    return _Builder(file, text, to_write).build()


def read_text(path: Path, *, pipes: bool = False) -> str:
    """Return a file's text without a byte order mark; raise ConfigError if it cannot be read, or is not text.

    With ``pipes`` it may be a named pipe: for commands that read it once, and that Ctrl-C can stop.
    """

    def refuse(message: str, hint: str = "") -> ConfigError:
        return ConfigError([Problem(str(path), 0, 0, "", message, hint)])

    try:
        raw = path.read_bytes() if pipes and path.is_fifo() else read_file(path)
    except FileNotFoundError:
        raise refuse("no such file", _near_miss(path)) from None
    except IsADirectoryError:
        raise refuse("is a directory", "name the file in it") from None
    except PermissionError:
        own = f"let the user with id {os.geteuid()} read it and enter its folders"
        raise refuse("cannot be read: permission denied", own) from None
    except NotAFileError as error:
        raise refuse(str(error.strerror), "write it into a file: it is read again and again") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        if getattr(error, "errno", None) == errno.EFBIG:
            raise refuse(str(getattr(error, "strerror", error)), "is it the right file?") from None
        raise refuse(f"cannot be read: {str(getattr(error, 'strerror', error)).lower()}") from None
    return text_of(str(path), raw)


def text_of(file: str, raw: bytes) -> str:
    """Return the text in ``raw``, which was read from ``file``, without a byte order mark. Raises ConfigError."""
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line, column = _line_and_column(raw[: error.start].decode())
        wrong = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise ConfigError([Problem(file, line, column, "", wrong, "save the file as UTF-8")]) from None


def _near_miss(path: Path) -> str:
    """Return a fix with the name of a similar file, if there is one."""
    try:
        near = difflib.get_close_matches(path.name, _beside(path), 1, _NEAR)
    except OSError:
        return ""
    return f"did you mean {path.parent / near[0]}?" if near else ""


def _beside(path: Path) -> list[str]:
    """Return the names of the other files in the directory."""
    return [each.name for each in path.parent.iterdir() if each.name != path.name]


def _line_and_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class _Builder:
    """Builds nodes from the parser's events, and collects uses of YAML that are not supported."""

    def __init__(self, file: str, text: str, to_write: str) -> None:
        self.file = file
        self.text = text
        self.to_write = to_write
        self.end = len(text)
        self.end_of_words = len(text.rstrip())
        self.torn = not text.endswith(("\n", "\r"))
        self.problems: list[Problem] = []
        self.twice: list[Problem] = []
        self.steps: list[str | int] = []
        self.events: Iterator[yaml.Event] = iter(yaml.CSafeLoader(text).get_event, None)

    def build(self) -> Document:
        root: Node = None
        try:
            root = self._document()
        except yaml.YAMLError as error:
            self._refuse_syntax(error)
        if not self.problems and not isinstance(root, Mapping):
            self._refuse(1, 1, "is empty" if root is None else "must hold a mapping", self.to_write)
        if self.problems or not isinstance(root, Mapping):
            raise ConfigError(self.problems + self.twice)
        return Document(self.file, root, tuple(self.twice))

    def _document(self) -> Node:
        root: Node = None
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse_at(event, "a second document", "keep one document per file")
                    break
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event)
        return root

    def _node(self, event: yaml.Event) -> Node:
        if isinstance(event, ScalarEvent):  # nearly all are: a quota file has a million
            if event.anchor is not None or event.tag is not None:
                self._refuse_properties(event)
            if event.style:
                return Scalar(event.value)
            if self.torn:
                self._refuse_if_torn(event)
            return None if event.value in _NULLS else Plain(event.value)
        if isinstance(event, yaml.AliasEvent):
            self._refuse_at(event, f"aliases (*{event.anchor}) are not supported", _SPELLED_OUT)
            return None
        assert isinstance(event, yaml.CollectionStartEvent)  # noqa: S101  mypy: the grammar
        self._refuse_properties(event)
        if len(self.steps) >= MAX_DEPTH:
            self.steps.clear()
            self._refuse_at(event, f"nested deeper than {MAX_DEPTH} levels")
            raise ConfigError(self.problems)
        return self._mapping(event) if isinstance(event, yaml.MappingStartEvent) else self._sequence(event)

    def _refuse_properties(self, event: ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.anchor is not None:
            self._refuse_at(event, f"anchors (&{event.anchor}) are not supported", _SPELLED_OUT)
        if event.tag is not None:
            self._refuse_at(event, f"tags ({event.tag}) are not supported", "leave it out; quotes make it a text")

    def _refuse_if_torn(self, plain: ScalarEvent) -> None:
        """Refuse a value at the end that may be truncated: 1048 may be the start of 1048576."""
        assert plain.end_mark is not None  # noqa: S101  for mypy: libyaml always says where
        if plain.end_mark.index >= (self.end if plain.value else self.end_of_words):
            self._refuse_at(plain, "the file ends within this line: is it half-written?", "end it with a newline")

    def _sequence(self, start: yaml.Event) -> Sequence:
        items = Sequence(_mark(start))
        self.steps.append(0)
        for event in self.events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            self.steps[-1] = len(items)
            items.append(self._node(event))
            items.marks.append(event.start_mark)
        self.steps.pop()
        return items

    def _mapping(self, start: yaml.Event) -> Mapping:
        mapping = Mapping(_mark(start))
        marks, steps, events = mapping.marks, self.steps, self.events
        for event in events:
            if event.__class__ is MappingEndEvent:
                break
            key = event.value if isinstance(event, ScalarEvent) else self._no_key(event)
            if key in mapping or key == "<<" or self.torn:
                self._refuse_key(event, mapping)
            steps.append(key)
            of_value = next(events)
            value = self._node(of_value)
            steps.pop()
            if key not in mapping:  # else the first one counts
                mapping[key] = value
                marks.append(event.start_mark)
                marks.append(of_value.start_mark)
        return mapping

    def _no_key(self, event: yaml.Event) -> str:
        self._refuse_at(event, "a key must be a text", self._template_hint(event))
        self._skip(event)
        return ""

    def _refuse_key(self, event: yaml.Event, mapping: Mapping) -> None:
        """Refuse a key that occurs twice, has a meaning of its own in YAML, or may be truncated."""
        if not isinstance(event, ScalarEvent):
            return
        if self.torn and not event.style:
            self._refuse_if_torn(event)
        if event.value == "<<" and not event.style:
            self._refuse_at(event, "merge keys (<<) are not supported", _SPELLED_OUT)
        elif event.value in mapping:
            mark, (first, _) = _mark(event), mapping.places(event.value)
            where = field_path((*self.steps, event.value))
            hint = f"keep one (the first is on line {first.line + 1})"
            self.twice.append(Problem(self.file, mark.line + 1, mark.column + 1, where, "is a duplicate key", hint))

    def _skip(self, event: yaml.Event) -> None:
        """Skip a node, however deeply others are nested in it."""
        depth = 0
        while True:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth <= 0:
                return
            event = next(self.events)

    def _refuse_at(self, event: yaml.Event, message: str, hint: str = "") -> None:
        mark = _mark(event)
        self._refuse(mark.line + 1, mark.column + 1, message, hint)

    def _refuse(self, line: int, column: int, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self.file, line, column, field_path(self.steps), message, hint))

    def _refuse_syntax(self, error: yaml.YAMLError) -> None:
        """Report the position where the parser gave up; the rest was not read."""
        self.steps.clear()
        if isinstance(error, yaml.reader.ReaderError):
            line, column = _line_and_column(self.text[: error.position])
            no_text = "is it UTF-16, or not text? save the file as UTF-8"
            hint = no_text if error.character == 0 else 'write it as "\\u…"'
            self._refuse(line, column, f"the character U+{error.character:04X} is not allowed", hint)
            return
        assert isinstance(error, yaml.MarkedYAMLError)  # noqa: S101  the parser raises these two alone
        mark = error.problem_mark or error.context_mark
        assert mark is not None  # noqa: S101  libyaml always says where
        message = error.problem or "is not YAML"
        if error.context and error.context_mark and error.context_mark.line != mark.line:
            message += f" ({error.context} that begins on line {error.context_mark.line + 1})"
        self._refuse(mark.line + 1, mark.column + 1, message, self._syntax_hint(mark))

    def _template_hint(self, event: yaml.Event) -> str:
        at = event.start_mark.index if event.start_mark is not None else 0
        return NO_VARIABLES if self.text[at - 1 : at + 1] == "{{" else ""

    def _syntax_hint(self, mark: yaml.Mark) -> str:
        if not self.text[mark.index :].strip():
            return "the file ends too early: is it half-written?"
        start = self.text.rfind("\n", 0, mark.index) + 1
        if "\t" in self.text[start : mark.index + 1]:
            return "indent with spaces, not with tabs"
        if holds_a_variable(self.text[start : mark.index + 1]):
            return NO_VARIABLES
        return "quote texts that contain `: `, ` #` or begin with one of [ ] { } & * ! | > % @ `"


def _mark(event: yaml.Event) -> Mark:
    assert event.start_mark is not None  # noqa: S101  for mypy: libyaml always says where
    return event.start_mark
