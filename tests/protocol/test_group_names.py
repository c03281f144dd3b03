"""The groups in a request's first field: found in any pieces, and nothing of other names is kept."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from protocol.group_names import GroupNames
from protocol.table import SPECS, key_version
from protocol.varint import encode_varint

GROUP = b"owners"


@given(
    st.lists(st.sampled_from([b"", b"o", b"owner", b"owners", b"ownerz", b"x" * 300]), max_size=5),
    st.sampled_from([4, 5]),
    st.lists(st.integers(0, 2000), max_size=6),
)
def test_group_is_found_once_in_any_pieces_of_an_array(names: list[bytes], version: int, cuts: list[int]) -> None:
    flexible = version == 5
    data = encode_varint(len(names) + 1) if flexible else len(names).to_bytes(4, "big")
    for name in names:
        data += (encode_varint(len(name) + 1) if flexible else len(name).to_bytes(2, "big")) + name
    data += b"\0" * 10
    walk = GroupNames(SPECS[key_version(15, version)], GROUP, is_array=True)
    found = []
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    for begin, end in pairwise(bounds):
        found += walk.feed(data, begin, end)
        assert len(walk._held) < len(GROUP) + 6
    assert found == [GROUP] * (GROUP in names)
