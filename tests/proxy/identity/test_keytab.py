import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.problems import InvalidValue
from proxy.identity.kerberos.keytab import _entries, principals
from tests.proxy.identity.kerberos import keytab

TWO = keytab("kafka/b1.example.com@EXAMPLE.COM", "alice@EXAMPLE.COM")


def written(folder: Path, content: bytes) -> Path:
    path = folder / "kafka.keytab"
    path.write_bytes(content)
    return path


def test_names_each_principal_once(tmp_path: Path) -> None:
    path = written(tmp_path, TWO + keytab("alice@EXAMPLE.COM")[2:])
    assert principals(path) == ["kafka/b1.example.com@EXAMPLE.COM", "alice@EXAMPLE.COM"]


def test_holes_are_passed_over(tmp_path: Path) -> None:
    hole = b"\xff\xff\xff\xfb" + b"12345"
    assert principals(written(tmp_path, TWO[:2] + hole + TWO[2:])) == principals(written(tmp_path, TWO))


def test_end_comes_with_a_size_of_nothing(tmp_path: Path) -> None:
    assert len(principals(written(tmp_path, TWO + bytes(4) + b"what was there before"))) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a keytab"),
        (b"\x05\x01" + TWO[2:], "is not a keytab"),
        (b"-----BEGIN PRIVATE KEY-----", "is not a keytab"),
        (b"\x05\x02", "holds no key"),
        (b"\x05\x02" + bytes(4), "holds no key"),
        (TWO[:-8], "ends too early"),
        (TWO[:4], "ends too early"),
    ],
)
def test_invalid_keytab_is_refused_with_path_and_hint(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InvalidValue, match=said) as raised:
        principals(path)
    assert str(path) in raised.value.message
    assert raised.value.hint


def test_missing_keytab_or_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"cannot be read: No such file"):
        principals(tmp_path / "none")
    with pytest.raises(InvalidValue, match=r"cannot be read: Is a directory"):
        principals(tmp_path)


@given(at=st.integers(2, len(TWO) - 1), value=st.integers(0, 255))
def test_damage_is_said_or_not_seen(at: int, value: int) -> None:
    """IndexError and struct.error are what `principals` reports; nothing else comes, and it comes to an end."""
    with suppress(IndexError, struct.error):
        _entries(TWO[:at] + bytes([value]) + TWO[at + 1 :])
