"""Every row of docs/track-record.md names a test that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?!fault \|)[^|]+\|([^|]+)\|$", re.MULTILINE)


def test_each_row_names_tests_that_exist() -> None:
    rows = ROW.findall((ROOT / "docs/track-record.md").read_text())
    assert len(rows) > 30
    for row in rows:
        path = None
        named = re.findall(r"`([^`]+)`", row)
        assert named
        for name in named:
            file, *parts = name.split("::")
            path = ROOT / file if (ROOT / file).is_file() else path
            assert path is not None
            assert path.is_file(), name
            for part in parts:
                word = part.partition("[")[0].partition(" ")[0]
                assert re.search(rf"(def|class) {word}\b", path.read_text()), name
