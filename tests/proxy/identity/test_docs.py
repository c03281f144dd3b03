"""docs/security.md says what is there."""

import re
from pathlib import Path

from proxy.identity import java_regex

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")


def test_the_files_with_attempts_exist() -> None:
    attempts = PAGE.partition("## Impersonation attempts")[2]
    named = re.findall(r"`(?:tests/\w+/(?:identity/)?)?(test_\w+\.py)`", attempts)
    assert len(named) == 4
    assert [name for name in named if not list(TESTS.rglob(name))] == []


def test_refused_java_constructs_are_listed_equally_in_code_and_docs() -> None:
    doc = java_regex.__doc__ or ""
    refused = doc.split("Refused are\n")[1].strip()
    assert refused in PAGE, "copy the list from proxy/identity/java_regex.py"
