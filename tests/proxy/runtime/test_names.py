"""Names off the wire and as labels."""

import itertools
from struct import pack

import pytest

from protocol.table import SPECS, key_version
from proxy.runtime.names import MAX_LABEL_BYTES, client_id, label
from quotas.names import MAX_NAME_BYTES


@pytest.mark.parametrize("length", [0, 3, 256, 257, 32_767])
def test_a_client_id_off_the_wire_is_never_too_long(length: int) -> None:
    frame = pack(">ihhihs", 0, 3, 1, 0, length, b"x") + b"x" * length
    name = client_id(SPECS[key_version(3, 1)], frame, 0)
    assert name == "x" * length if length <= MAX_NAME_BYTES else len(name) == 128


@pytest.mark.parametrize(
    "name", ["", "greedy", "größe", "a\nb", 'say "hi"', "back\\slash", "\x1b[31m", "漢" * (MAX_LABEL_BYTES // 3)]
)
def test_a_label_is_the_name_as_it_is(name: str) -> None:
    assert label(name) == name


def test_a_lone_surrogate_becomes_its_escape() -> None:
    assert label("a\udc80b") == "a\\udc80b"


def test_a_long_name_is_cut_and_told_from_others_by_a_digest() -> None:
    labels = {label("x" * 32_767), label("x" * 32_766), label("x" * 32_766 + "y")}
    assert len(labels) == 3
    assert {len(text) for text in labels} == {MAX_LABEL_BYTES}
    for one, other in itertools.pairwise(sorted(labels)):
        assert one[:100] == other[:100] == "x" * 100
