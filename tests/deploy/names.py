"""The names in backticks of pages and of docstrings, and whether the sources have them.

Sources are code without comments and docstrings, and every other tracked file that is no page. A name is

- a path (``proxy/edge/tls.py``, ``session/admission``), or a file (``tls.py``): tracked, by its last parts;
- a test (``tests/a.py::test_b``): defined in that file;
- ``make TARGET``, or a command of ``sluice`` with its options, as the man page has them;
- dotted: a module of ours and what it has (``quotas.throttle.excess``), a class of ours and a member (``Bound.shut``),
  a setting (``limits.idle``), or a text that the sources have as it is;
- a word of its own (``drained``), and within other texts each with an underscore or a capital inside: an identifier of
  the sources, a word of a string of theirs, a metric or a column of usage records.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from analysis.schema import COLUMNS
from config.forms import described_by
from config.settings import Settings

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("analysis", "config", "protocol", "proxy", "quotas")
CODE: Final = (*PACKAGES, "bench", "deploy", "tests")
KINDS_OF_FILES: Final = (".py", ".sql", ".j2", ".md", ".toml", ".yml")
DATA: Final = ("bench/results/", "tests/vectors/")
_MAN: Final = re.sub(r"\\f[BR]|\\(?=-)", "", (ROOT / "deploy/share/man/man1/sluice.1").read_text(encoding="utf-8"))
COMMANDS: Final = dict(re.findall(r"^\.SS (sluice[a-z -]*[a-z])(.*?)(?=^\.SS|\Z)", _MAN, re.MULTILINE | re.DOTALL))
"""Each command that does something → its part of the man page, which is compared with the commands."""
TARGETS: Final = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
METRICS: Final = re.findall(r"sluice_\w+", (ROOT / "docs/metrics.md").read_text(encoding="utf-8"))
"""tests/proxy/admin/test_metrics.py compares them with what is rendered."""
_FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_BACKTICKS: Final = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]+?)\1(?!`)")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_IDENTIFIER: Final = re.compile(r"(?<![\w….-])(?:[A-Za-z]\w*[a-z0-9]_\w+|[A-Za-z]*[a-z][A-Z]\w*)(?![\w*…])")
_DOTTED: Final = re.compile(r"(?<![\w/.…-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?![\w/-])")
_PATH: Final = re.compile(r"(?<![\w/.:=~$…*-])\.?[\w-]+(?:\.[\w-]+)*(?:/[\w.-]+)*/?(?![\w/*<…=-])")
_TEST: Final = re.compile(r"(tests/[\w/.]+|(?<!\S))::([A-Za-z_]\w*(?:::\w+)*)(?:\[[\w-]+\])?")
_ENDPOINT: Final = re.compile(r"(?:GET |POST )?/[a-z]+(?:/[a-z]+)*")
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def backticked(page: str) -> Iterator[str]:
    """Yield the texts in backticks of a page, but for its blocks of code."""
    for _, text in _BACKTICKS.findall(_FENCE.sub("", page)):
        yield text


def prose_of(code: str) -> str:
    """Return the docstrings and the comments of a module."""
    docstrings = [str(text.value) for text in _docstrings(ast.parse(code))]
    return "\n".join([*docstrings, *re.findall(r"^\s*#.*$|(?<=  )#.*$", code, re.MULTILINE)])


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


@dataclass
class Sources:
    """The tracked files, as far as names are looked up in them."""

    paths: set[str] = field(default_factory=set)
    """The ends of all paths of files and folders, those of modules also without ``.py``."""
    folders: set[str] = field(default_factory=set)
    """The names of all folders."""
    words: set[str] = field(default_factory=set)
    """Identifiers of code, and words of its strings and of all other files."""
    text: str = ""
    """The strings of code, and all other files."""
    modules: dict[str, set[str]] = field(default_factory=dict)
    """Path of a module → what is defined, imported or assigned in it."""
    classes: dict[str, set[str]] = field(default_factory=dict)
    """Class → the same of the modules that have one of this name."""

    def has_text(self, text: str) -> bool:
        """Whether a string of code, or another file, has a text that no longer word continues."""
        return text in self.text and re.search(rf"(?<![\w.-]){re.escape(text)}(?![\w-]|\.\w)", self.text) is not None

    def has_word(self, word: str) -> bool:
        """Whether there is such a word, or one that begins with a word that ends in ``_``; or a module of Python."""
        if word in self.words or word in sys.stdlib_module_names:
            return True
        return word.endswith("_") and any(each.startswith(word) for each in self.words)


def sources() -> Sources:
    """Return those of this checkout."""
    found = Sources()
    texts: list[str] = []
    for name in tracked():
        _add_path(name, found.paths)
        found.folders |= {*name.split("/")[:-1]}
        if name.endswith((".md", "LICENSE", "deploy/names.py", "deploy/test_names.py")) or name.startswith(DATA):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            texts += _add_code(name, ast.parse(text), found)
        else:
            texts.append(text)
    found.text = "\n".join(texts)
    found.words |= {*_WORD.findall(found.text), *METRICS, *(column.name for column in COLUMNS)}
    return found


def _add_path(name: str, paths: set[str]) -> None:
    parts = name.removesuffix("/__init__.py").split("/")
    for end in range(1, len(parts) + 1):
        for begin in range(end):
            path = "/".join(parts[begin:end])
            paths |= {path, path.removesuffix(".py")} if end == len(parts) else {path}


def _add_code(name: str, tree: ast.Module, found: Sources) -> Iterator[str]:
    """Add the names of a module; yield its strings."""
    defined: set[str] = set()
    classes: list[str] = []
    prose = {id(text) for text in _docstrings(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                yield text
            case ast.Name(id=word, ctx=context) | ast.Attribute(attr=word, ctx=context):
                found.words.add(word)
                if isinstance(context, ast.Store):
                    defined.add(word)
            case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word) | ast.arg(arg=word):
                defined.add(word)
            case ast.ClassDef(name=word):
                defined.add(word)
                classes.append(word)
            case ast.keyword(arg=str(word)):
                found.words.add(word)
            case ast.alias(name=word, asname=other):
                defined.add(other or word)
    found.modules[name] = defined
    found.words |= defined
    for each in classes:
        found.classes.setdefault(each, set()).update(defined)


@cache
def settings() -> frozenset[str]:
    """Return the ends of the dotted path of each setting of sluice.yaml."""
    paths = [setting.split(".") for setting in _settings(Settings, "")]
    return frozenset(".".join(path[begin:]) for path in paths for begin in range(len(path)))


def _settings(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, setting in model.model_fields.items():
        here = f"{path}{setting.alias or name}"
        yield here
        for section in described_by(setting):
            yield from _settings(section, f"{here}.")


def unknown(text: str, found: Sources) -> Iterator[str]:
    """Yield each name in a text between backticks that the sources do not have."""
    if text.startswith("make "):
        yield from (
            f"make {word}" for word in text.split()[1:] if re.fullmatch("[a-z-]+", word) and word not in TARGETS
        )
        return
    if text.startswith("sluice "):
        yield from _unknown_command(text.split())
        return
    for file, names in _TEST.findall(text):
        within = found.modules.get(file, set()) if file else found.words
        yield from (f"{file}::{name}" for name in names.split("::") if name not in within)
    rest = _TEST.sub("", text).replace("[]", "").replace("kafka_sluice/", "")
    if _ENDPOINT.fullmatch(rest) and not found.has_text(rest.split()[-1]):
        yield rest
    for path in _PATH.findall(rest):
        if _may_be_path(path, found) and path.rstrip("/") not in found.paths:
            module, _, name = path.rpartition(".")
            if not any(name in defined for each, defined in found.modules.items() if each.endswith(f"{module}.py")):
                yield path
    rest = re.sub(r"[\w.…-]*/[\w./-]*", "", rest)
    yield from (option for option in _OPTION.findall(rest) if not found.has_text(option))
    dotted = _DOTTED.findall(rest)
    yield from (name for name in dotted if not is_dotted(name, found))
    rest = _DOTTED.sub("", rest)
    alone = re.fullmatch(r"([A-Za-z_]\w*)(?:\(\))?", rest)
    yield from (name for name in ([alone[1]] if alone else _IDENTIFIER.findall(rest)) if not found.has_word(name))


def _may_be_path(path: str, found: Sources) -> bool:
    """Whether it is meant to be a path here: by its first folder, or by its kind of file."""
    return path.partition("/")[0] in found.folders if "/" in path else path.endswith(KINDS_OF_FILES)


def is_dotted(name: str, found: Sources) -> bool:
    """Whether a dotted name is one of a module, a class, a setting, a file or a text of ours, or one of Python."""
    first, *rest = name.removeprefix("kafka_sluice.").split(".")
    if name in settings() or name in found.paths:
        return True
    if first in sys.stdlib_module_names and hasattr(import_module(first), rest[0]):
        return True
    if first in CODE:
        return _is_in_module([first, *rest], found)
    if first in found.classes:
        return {*rest} <= found.classes[first]
    modules = [names for module, names in found.modules.items() if f"/{module}".endswith(f"/{first}.py")]
    return any({*rest} <= names for names in modules) or found.has_text(name)


def _is_in_module(parts: list[str], found: Sources) -> bool:
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        names = found.modules.get(f"{path}.py", found.modules.get(f"{path}/__init__.py"))
        if names is not None:
            return {*parts[length:]} <= names
    return False


def _unknown_command(words: list[str]) -> Iterator[str]:
    """Yield what is no command of ``sluice``, and no option of the one that is named."""
    named = [*takewhile(re.compile("[a-z][a-z-]*").fullmatch, (word for word in words if word != "…"))]
    while named and not any(f"{heading} ".startswith(f"{' '.join(named)} ") for heading in COMMANDS):
        word = named.pop()
        if not any(heading == " ".join(named) for heading in COMMANDS):  # else it is an argument
            yield f"{' '.join(named)}: {word}"
            return
    options = " ".join(body for heading, body in COMMANDS.items() if f"{heading} ".startswith(f"{' '.join(named)} "))
    for option in (word.partition("=")[0] for word in words if word.startswith("-")):
        if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", f"{options} -h --help --version"):
            yield f"{' '.join(named)}: {option}"
