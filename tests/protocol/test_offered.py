"""Every API of the table is offered to clients, or docs/clients.md says why not: those of a new release as well."""

from pathlib import Path

from protocol.api_versions import advertised_limits
from protocol.table import NAMES

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"


def test_an_api_is_offered_or_named_with_the_reason() -> None:
    section = (
        DOCUMENT.read_text(encoding="utf-8").partition("## APIs that clients are not offered")[2].partition("\n## ")[0]
    )
    names = [row.split(" | ")[0].removeprefix("| ") for row in section.splitlines() if row.startswith("| ")]
    named = {name for row in names[1:] for name in row.split(", ")}
    offered = advertised_limits()
    assert {name for key, name in NAMES.items() if key not in offered} == named
