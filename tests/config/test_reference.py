from pathlib import Path

from config.reference import updated

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_says_what_the_models_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert updated(text) == text, "run python -m config.reference"


def test_defaults_are_written_as_in_a_file() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "| `request` | size | `100MiB` |" in text
    assert "| `size` | duration | `1s` |" in text
    assert "| `max_delay` | duration | `null` |" in text
    assert "| `bootstrap` | list, each host:port | required |" in text
    assert "| `fetch_max_version` | whole number | `null` |" in text
    assert "### `listeners[]`" in text
    assert "| `workers` |" in text
