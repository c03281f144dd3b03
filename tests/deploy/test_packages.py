"""What is packed: the tracked files of the packages, and nothing that happens to lie beside them."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
STRAYS = (
    "secret.key",
    "password",
    ".env",
    "capture.pcap",
    "sluice-local.yaml",
    "client.properties",
    "keytab",
    "old.py~",
)
FOLDERS = (
    *(".", ".venv/lib", "bench/bin", "tests", "notes"),
    *("deploy/launcher", "deploy/launcher/kafka_sluice", "deploy/share", "deploy/share/man/man1"),
    *("analysis", "analysis/page", "analysis/spark"),
    *("config", "protocol", "protocol/generate", "proxy", "proxy/identity"),
    *(
        "quotas",
        "quotas/stores",
        "proxy/secrets",
        "deploy",
        "deploy/secure/tls",
        "deploy/demo",
        "docs",
        "docs/decisions",
    ),
)


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not in a git checkout")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


LAUNCHER = "deploy/launcher/"
SHARE = "deploy/share/"


def packed(files: set[str]) -> set[str]:
    """Return those of a wheel: the packages, the launcher, the man page and the completions."""
    return {name for name in files if name.split("/")[0] in PACKAGES or name.startswith((LAUNCHER, SHARE))}


def installed_as(files: set[str]) -> set[str]:
    """Return where they are then: all modules and their data below one name."""
    places = {LAUNCHER: "", SHARE: f"kafka_sluice-{PROJECT['project']['version']}.data/data/share/"}
    found = set()
    for name in packed(files):
        folder = next((each for each in places if name.startswith(each)), "")
        found.add(f"{places.get(folder, 'kafka_sluice/')}{name.removeprefix(folder)}")
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files, and in every folder what nobody meant to publish."""
    copy = tmp_path_factory.mktemp("tree")
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for folder in FOLDERS:
        (copy / folder).mkdir(parents=True, exist_ok=True)
        for stray in STRAYS:
            (copy / folder / stray).write_text("canary")
    return copy


def build(kind: str, source: Path, out: Path) -> Path:
    """Build without a C compiler; make test-compiled installs a wheel that was built with one."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    environment = {**os.environ, "CC": "no-such-compiler"}
    done = subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True, text=True, timeout=120)
    told = "the hot path is not compiled: there is no C compiler no-such-compiler" in done.stdout + done.stderr
    assert told == (kind == "wheel")
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    made = build("sdist", tree, tmp_path_factory.mktemp("sdist"))
    (made.parent / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", made, "-C", made.parent / "unpacked"], check=True)  # Python 3.11.2 has no filter
    (unpacked,) = (made.parent / "unpacked").iterdir()
    return unpacked


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_sdist_holds_tracked_files_alone(sdist: Path) -> None:
    held = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    assert held - tracked() == {"PKG-INFO"}
    assert {name for name in held if Path(name).name in STRAYS} == set()


def test_the_sdist_holds_everything_that_is_installed_and_read(sdist: Path) -> None:
    held = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    read = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "deploy/hatch_build.py"}
    examples = {name for name in tracked() if name.startswith("deploy/") and not name.endswith(".py")}
    docs = {name for name in tracked() if name.startswith("docs/")}
    assert (packed(tracked()) | read | examples | docs) - held == set()


def test_the_wheel_of_the_sdist_holds_every_package_and_its_data(sdist: Path, tmp_path: Path) -> None:
    assert names_in(build("wheel", sdist, tmp_path)) == installed_as(tracked())


def test_the_wheel_of_the_tree_is_the_same(tree: Path, tmp_path: Path) -> None:
    assert names_in(build("wheel", tree, tmp_path)) == installed_as(tracked())


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user has who installs the wheel of the sdist, but for the libraries."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = build("wheel", sdist, tmp_path_factory.mktemp("wheel"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A folder of somebody else's, with modules and packages of Sluice's names in it."""
    for name in ("config.py", "quotas.py", "proxy/__init__.py", "protocol/__init__.py", "analysis/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise ImportError('the {name} of somebody else')")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["bin/sluice", "--version"], f"sluice {PROJECT['project']['version']} (pure Python)"),
        (["bin/sluice", "check", str(ROOT / "deploy" / "quotas.yaml")], "ok (4 quotas)"),
        (["bin/sluice", "analyze", "--help"], "recommend"),
        ([sys.executable, "-m", "kafka_sluice", "--version"], f"sluice {PROJECT['project']['version']}"),
        ([sys.executable, "kafka_sluice/analysis/__main__.py", "--help"], "recommend"),
    ],
    ids=lambda value: " ".join(map(os.path.basename, value)) if isinstance(value, list) else "",
)
def test_installed_commands_run_beside_foreign_modules_of_same_names(
    installed: Path, strange: Path, command: list[str], said: str
) -> None:
    """The working directory and PYTHONPATH may hold a `config.py` or a `proxy/` of anybody's."""
    program = [str(installed / part) if "/" in part and not part.startswith("/") else part for part in command]
    environment = {**os.environ, "PYTHONPATH": f"{strange}{os.pathsep}{installed}"}
    done = subprocess.run(program, cwd=strange, env=environment, capture_output=True, text=True, check=False)
    assert said in done.stdout, done.stderr


@pytest.mark.slow
def test_wheel_installs_a_single_package(installed: Path) -> None:
    found = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert found == {"kafka_sluice", "bin", "share"}


def docker_pattern(line: str) -> re.Pattern[str]:
    """Return a line of .dockerignore as a pattern of paths and of what is below them, as Docker reads it."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    cut = re.split(r"(\*\*/|\*\*|\*|\?)", line.removeprefix("!").strip("/"))
    return re.compile("".join(parts.get(part, re.escape(part)) for part in cut) + "(?:/.*)?")


LINES = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]


def left_out(path: str) -> bool:
    """Whether the last line that fits leaves a path out."""
    fitting = [line for line in LINES if docker_pattern(line).fullmatch(path)]
    return bool(fitting) and not fitting[-1].startswith("!")


def let_in(path: str) -> bool:
    """Whether a file comes into the context of the image.

    A builder without BuildKit goes into a folder that is left out only where a line with `!` begins with its name.
    """
    parents = [str(parent) for parent in Path(path).parents if str(parent) != "."]
    entered = (not left_out(each) or any(f"{line}/".startswith(f"!{each}/") for line in LINES) for each in parents)
    return not left_out(path) and all(entered)


def test_the_context_of_the_image_is_tracked_files_of_the_packages() -> None:
    strays = {os.path.normpath(f"{folder}/{stray}") for folder in FOLDERS for stray in STRAYS}
    files = {"pyproject.toml", "README.md", "LICENSE"}
    files |= {"deploy/build-requirements.txt", "deploy/hatch_build.py", "deploy/requirements.txt"}
    assert {path for path in tracked() | strays if let_in(path)} == packed(tracked()) | files
    assert not let_in("proxy/__pycache__/app.cpython-311.pyc")


@pytest.mark.slow
def test_the_context_of_the_image_is_enough_to_install_from(tree: Path, tmp_path: Path) -> None:
    for name in filter(let_in, tracked()):
        (tmp_path / "context" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "context" / name).write_bytes((tree / name).read_bytes())
    assert names_in(build("wheel", tmp_path / "context", tmp_path / "wheel")) == installed_as(tracked())
