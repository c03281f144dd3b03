from pathlib import Path

import pytest

from config.files import read_secret
from config.problems import InvalidValue


def test_secret_is_read_without_the_spaces_around_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b" 0123456789abcdef\n")
    assert read_secret(tmp_path / "secret") == b"0123456789abcdef"


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), (b" \n", "is empty"), (b"0123456789abcde", "has 15 bytes, and can be guessed")],
)
def test_missing_empty_or_short_secret_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(InvalidValue, match=said):
        read_secret(tmp_path / "secret")
