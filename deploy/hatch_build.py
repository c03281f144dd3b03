"""A build hook that compiles the hot modules with mypyc into the wheel (docs/decisions/0020).

hatchling loads it with HATCH_BUILD_HOOK_ENABLE_CUSTOM=true, as in ``make dist`` and the Dockerfile. The hook's table
in pyproject.toml names the modules.
"""

import ast
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY: Final = "kafka_sluice"
"""The library with all compiled code is ``kafka_sluice__mypyc``; the module of each compiled file only refers to it."""

_MYPY: Final = (
    "--config-file=",
    "--no-site-packages",  # the same types, hence the same code, whatever is installed
    "--ignore-missing-imports",
    "--follow-imports=silent",
)


class CompileError(Exception):
    """A module cannot be compiled; the text says which, where and why."""


class CompiledWheel(BuildHookInterface[Any]):
    """Adds mypyc's libraries beside the sources, and tags the wheel for the platform."""

    _made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if missing := missing_for_c():
            self.app.display_warning(
                f"the hot path is not compiled: there is no {missing}; Sluice runs without, slower"
            )
            return
        root = Path(self.root)
        self._made = Path(mkdtemp(prefix="sluice-compile-"))
        for file in self.build_config.builder.recurse_included_files():
            if file.relative_path.endswith(".py"):
                copy = self._made / file.relative_path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.path, copy)
        compile_in(self._made, modules(root, self.config))
        for library in libraries(self._made):
            place = library.relative_to(self._made)
            alone = len(place.parts) == 1
            build_data["force_include"][str(library)] = str(Path("kafka_sluice", place) if alone else place)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        if self._made is not None:
            shutil.rmtree(self._made)


def missing_for_c() -> str:
    """Return what is missing to compile C for this Python; "" if nothing is."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(shlex.split(compiler)[0]) is None:
        return f"C compiler {compiler} (CC names another)"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if header.is_file() else f"{header} (python3-dev)"


def settings(root: Path) -> Mapping[str, Any]:
    """Return the table of the hook in pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    table: Mapping[str, Any] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    return table


def modules(root: Path, table: Mapping[str, Any]) -> list[str]:
    """Return the paths of the modules to compile, relative to ``root``. Raises CompileError for a stale name."""
    found = {path for pattern in table["compiled"] for path in _matching(root, pattern)}
    return sorted(path for path in found if not path.endswith("__init__.py"))


def _matching(root: Path, pattern: str) -> set[str]:
    paths = {str(path.relative_to(root)) for path in root.glob(pattern)}
    if not paths:
        raise CompileError(f"pyproject.toml: there is no {pattern} to compile: remove it from the list")
    return paths


def libraries(folder: Path) -> list[Path]:
    """Return the extension modules below ``folder``."""
    return sorted(path for path in folder.rglob("*.so") if path.relative_to(folder).parts[0] != "build")


def compile_in(folder: Path, paths: Sequence[str]) -> None:
    """Compile modules of a tree in place. Raises CompileError with mypyc's output."""
    wrong = [line for path in paths for line in pitfalls(path, (folder / path).read_text(encoding="utf-8"))]
    if wrong:
        raise CompileError("\n".join(wrong))
    command = [sys.executable, str(Path(__file__).resolve()), *paths]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  ourselves
    if done.returncode:
        raise CompileError(f"mypyc cannot compile this:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def pitfalls(path: str, source: str) -> Iterator[str]:
    """Yield the constructs of a module that mypyc accepts silently and compiles to different behaviour."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _errors_of_two_types(path, node)
            yield from _read_after_none(path, node)
            yield from _changed_before_finally(path, node)
        elif isinstance(node, ast.ClassDef):
            methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            if "__len__" in methods and "__bool__" not in methods:
                yield f"{path}:{node.lineno}: {node.name} has __len__ and needs __bool__: mypyc holds it for true"


def _errors_of_two_types(path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    types: dict[str, str] = {}
    for handler in ast.walk(function):
        if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
            caught = ast.unparse(handler.type)
            if types.setdefault(handler.name, caught) != caught:
                yield (
                    f"{path}:{handler.lineno}: {handler.name} is {types[handler.name]} above and {caught} here: give"
                    " them two names, or mypyc raises TypeError in place of the second"
                )


def _read_after_none(path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield reads of attributes after None: mypy takes them for None until they are set again, even if a call has set
    them.
    """
    seen: list[tuple[int, int, str, str]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            to = "None" if isinstance(node.value, ast.Constant) and node.value.value is None else "other"
            end = (node.end_lineno or 0, node.end_col_offset or 0)
            seen += [(*end, ast.unparse(target), to) for target in node.targets if isinstance(target, ast.Attribute)]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            seen.append((node.lineno, node.col_offset, ast.unparse(node), "read"))
    last: dict[str, str] = {}
    for line, _, name, what in sorted(seen):
        if what == "read" and last.get(name) == "None":
            yield (
                f"{path}:{line}: {name} is read in the function that has set it to None: set it in a method of its own,"
                " or mypyc raises TypeError where it has become something else"
            )
        elif what != "read":
            last[name] = what


def _changed_before_finally(path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield names set in a ``try`` and read in its ``finally``: mypy assumes that all of the ``try`` has run."""
    for guarded in (node for node in ast.walk(function) if isinstance(node, ast.Try)):
        before: list[ast.stmt | ast.ExceptHandler] = [*guarded.body, *guarded.handlers, *guarded.orelse]
        changed = {name.id for name in _names(before) if isinstance(name.ctx, ast.Store)}
        for name in _names(guarded.finalbody):
            if isinstance(name.ctx, ast.Load) and name.id in changed:
                yield (
                    f"{path}:{name.lineno}: {name.id} is set under the try and read in its finally: read it in an else"
                    " and in handlers, or mypyc raises TypeError where an error has left it as it was"
                )


def _names(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    return (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))


def _compile(paths: Sequence[str]) -> None:
    from mypyc.build import mypycify
    from pybind11.setup_helpers import ParallelCompile
    from setuptools import setup

    level = os.environ.get("SLUICE_OPT_LEVEL", "3")  # of gcc; a lower one is for wheels that are only tested
    extensions: list[Any] = mypycify(
        [*_MYPY, *paths], group_name=LIBRARY, opt_level=level, debug_level="0", multi_file=True
    )
    if sys.platform == "linux":  # direct calls between modules, without the PLT: 4 to 8 % of a request
        for each in extensions:
            each.extra_link_args = [*each.extra_link_args, "-Wl,-Bsymbolic"]
    with ParallelCompile():  # setuptools only parallelises libraries, and nearly all files are of one
        setup(name=LIBRARY, packages=[], ext_modules=extensions, script_args=["-q", "build_ext", "--inplace"])


if __name__ == "__main__":
    _compile(sys.argv[1:])
