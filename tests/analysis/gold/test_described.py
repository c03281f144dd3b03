"""The columns of gold are described once, in the heads of their queries; the docs' table is made of them."""

from pathlib import Path

from analysis.gold.described import updated


def test_docs_have_the_columns_of_the_heads() -> None:
    text = (Path(__file__).parents[3] / "docs" / "analysis-tables.md").read_text(encoding="utf-8")
    assert updated(text) == text, "run make docs"
