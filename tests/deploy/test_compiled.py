"""The compiled build: what of the sources mypyc must not get, and what is installed of its wheel."""

import ast
import os
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import pytest

from deploy.hatch_build import CompileError, modules, pitfalls, settings
from tests.conftest import COMPILED
from tests.harness.compiled import ROOT, names

needs_compiled = pytest.mark.skipif(not COMPILED, reason="make test-compiled builds and installs it")
SITE = Path(sysconfig.get_path("purelib"))


def test_hot_path_modules_are_compiled() -> None:
    hot = {"protocol.frames", "quotas.rate", "proxy.session.request_stream", "proxy.edge.wires"}
    assert hot <= set(names())


def test_classes_are_compiled_with_their_bases() -> None:
    """Neither may a compiled class have an interpreted base of ours, nor the other way round."""
    compiled = set(names())
    apart: list[str] = []
    for path in (path for package in ("quotas", "proxy") for path in (ROOT / package).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        homes = {alias.name: str(node.module) for node in imports for alias in node.names}
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            bases = [homes.get(ast.unparse(base), module) for base in node.bases]
            own = [home for home in bases if home.startswith(("quotas.", "proxy."))]
            apart += [f"{module}.{node.name}: {home}" for home in own if (home in compiled) != (module in compiled)]
    assert apart == []


def test_a_name_that_stands_for_nothing_any_more_is_refused() -> None:
    wrong = {**settings(ROOT), "compiled": ["protocol/*.py", "gone.py"]}
    with pytest.raises(CompileError, match="there is no gone"):
        modules(ROOT, wrong)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class A:\n    def __len__(self): ...", "m.py:1: A has __len__ and needs __bool__"),
        ("class A:\n    def __len__(self): ...\n    def __bool__(self): ...", ""),
        (
            "def f():\n    try: ...\n    except KeyError as error: ...\n    except OSError as error: ...",
            "m.py:4: error is KeyError above and OSError here",
        ),
        ("def f():\n    try: ...\n    except KeyError as error: ...\n    except OSError as other: ...", ""),
        ("def f(a):\n    a.b = None\n    g()\n    if a.b: ...", "m.py:4: a.b is read in the function"),
        ("def f(a):\n    a.b = None\n    a.b = g()\n    if a.b: ...", ""),
        (
            "def f():\n    a = None\n    try: a = g()\n    finally: h(a)",
            "m.py:4: a is set under the try and read in its",
        ),
        ("def f():\n    a = None\n    try: g(a)\n    finally: h(a)", ""),
    ],
)
def test_mypyc_pitfall_in_source_is_found(source: str, said: str) -> None:
    found = list(pitfalls("m.py", source))
    assert [line[: len(said)] for line in found] == ([said] if said else [])


@pytest.mark.long
def test_sources_to_compile_have_no_mypyc_pitfall() -> None:
    paths = modules(ROOT, settings(ROOT))
    assert [line for path in paths for line in pitfalls(path, (ROOT / path).read_text(encoding="utf-8"))] == []


@needs_compiled
def test_modules_under_test_are_the_compiled_ones() -> None:
    assert {Path(str(import_module(name).__file__)).suffix for name in names()} == {".so"}


@needs_compiled
def test_compiled_wheel_installs_a_single_package() -> None:
    found = {path.name for path in SITE.iterdir()} - {"libraries.pth"}
    assert {name for name in found if not name.endswith(".dist-info")} == {"kafka_sluice"}
    (tag,) = (line for line in next(SITE.glob("*.dist-info/WHEEL")).read_text().splitlines() if line.startswith("Tag"))
    assert tag.startswith(f"Tag: cp3{sys.version_info.minor}-")


@needs_compiled
def test_compiled_wheel_holds_the_sources_beside_it() -> None:
    """For tracebacks, and for whoever wants to look."""
    assert [name for name in names() if not (SITE / "kafka_sluice" / f"{name.replace('.', '/')}.py").is_file()] == []


@needs_compiled
def test_the_command_runs_among_strangers_of_the_same_names(tmp_path: Path) -> None:
    for name in ("config.py", "quotas.py", "proxy.py", "protocol.py"):
        (tmp_path / name).write_text(f"raise ImportError('the {name} of somebody else')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for words, ending in (
        (["--version"], "(compiled)"),
        (["check", str(ROOT / "deploy/quotas.yaml")], "ok (4 quotas)"),
    ):
        command = [str(Path(sys.executable).parent / "sluice"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.strip().endswith(ending), done.stderr
