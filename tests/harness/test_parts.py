"""``make test`` runs all its parts, whatever fails, and says what failed."""

import re
from pathlib import Path

import pytest

from tests import parts

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose Makefile has parts of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Makefile").write_text(
        "setup good late:\n\t@echo '==== 3 passed in 0.1s ===='\nbad:\n\t@echo boom; exit 1\n"
    )
    return tmp_path


def stages(monkeypatch: pytest.MonkeyPatch, *wanted: tuple[tuple[str, ...], ...]) -> None:
    monkeypatch.setattr(parts, "STAGES", {"test": wanted})


def test_failing_part_hides_no_other_and_is_named_at_the_end(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages(monkeypatch, (("setup",),), (("bad", "good"), ("late",)))
    assert parts.main(["test"]) == 1
    said = capsys.readouterr().out
    closing = said[said.rindex("setup ") :]
    assert re.findall(r"^(\w+) +(passed|FAILED) in", closing, flags=re.MULTILINE) == [
        ("setup", "passed"),
        ("bad", "FAILED"),
        ("good", "passed"),
        ("late", "passed"),
    ]
    assert "3 passed in 0.1s" in closing
    assert re.search(r"^FAILED: bad, in [\d.]+ minutes$", closing, flags=re.MULTILINE)
    assert "boom" in said


def test_set_up_that_fails_is_the_last_part(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "Makefile").write_text("setup:\n\t@exit 1\n")
    stages(monkeypatch, (("setup",),), (("good",),))
    assert parts.main(["test"]) == 1
    assert "good" not in capsys.readouterr().out


def test_every_part_is_a_target_of_the_makefile() -> None:
    for part in (part for stage in parts.STAGES.values() for lanes in stage for lane in lanes for part in lane):
        assert re.search(rf"^{part}:", MAKEFILE, flags=re.MULTILINE), part


def test_unknown_set_of_parts_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parts.main(["tset"]) == 2
    assert "usage: python -m tests.parts test|slow" in capsys.readouterr().err
