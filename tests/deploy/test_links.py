"""Links between pages, and to pages from everywhere else, lead to a page and a heading that exist."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAMED = re.compile(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+)|, \"([^\"]+)\")?")
TEXTS = {".md", ".py", ".yml", ".yaml", ".toml", ".service", ".socket", ".txt", ".j2", ".json", ""}


@cache
def headings(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    for heading in headings(page):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{anchor}-{number}" if (number := found.count(anchor)) else anchor)
    return set(found)


def broken(page: Path) -> Iterator[str]:
    """Yield the links of a page that lead nowhere; other sites are not asked."""
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"https?:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A b\n\n[1](a.md#a-b) [2](#c) [3](b.md) `[4](d.md)`\n\n```\n[5](e.md)\n```\n")
    assert list(broken(tmp_path / "a.md")) == ["#c", "b.md"]


def test_pages_named_outside_the_docs_exist() -> None:
    """With an anchor, or with a heading in quotes: in code, messages and deploy/."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [name for name in tracked if Path(name).suffix in TEXTS and not name.startswith(("docs/", "CHANGELOG"))]
    lost, seen = [], 0
    for name in files:
        for page, anchor, heading in _NAMED.findall((ROOT / name).read_text(encoding="utf-8", errors="ignore")):
            path = ROOT / page
            seen += 1
            missing = not path.is_file() or (anchor and anchor not in anchors(path))
            if missing or (heading and " ".join(heading.split()) not in headings(path)):
                lost.append((name, page, anchor or heading))
    assert lost == []
    assert seen > 50


def test_the_index_names_every_page() -> None:
    named = set(_LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    inside = sorted(name for name in named if re.fullmatch(r"[\w-]+\.md", name))
    assert inside == sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")
