import struct

import pytest

from protocol.compile import Endpoint, Tag, compile_walk, walk_source
from protocol.errors import ProtocolError


def test_short_layout_compiles_to_the_expected_source() -> None:
    assert walk_source("error_code:i16 names:[string]? throttle_time_ms:i32", None).splitlines() == [
        "def walk(data, p, endpoints, tags):",
        "    throttle = -1",
        "    p += 2",
        "    n = int32(data, p)[0]",
        "    p += 4",
        "    for _ in range(n):",
        "        n = int16(data, p)[0]",
        "        if n < 0:",
        "            raise null(p)",
        "        p += 2 + n",
        "    throttle = p",
        "    p += 4",
        "    if p > len(data):",
        "        raise IndexError(p)",
        "    return throttle",
    ]


def test_layout_without_needed_fields_compiles_to_no_walk() -> None:
    assert len(walk_source("~ error_code:i16 names:[string]", None).splitlines()) == 5


@pytest.mark.parametrize(
    ("layout", "body", "throttle"),
    [
        ("ids:[i32] throttle_time_ms:i32", "00000002 00000001 00000002 00000009", 12),
        ("ids:[i32]? throttle_time_ms:i32", "ffffffff 00000009", 4),
        ("pairs:[a:i16 b:i8]? throttle_time_ms:i32", "00000002 aaaaaa bbbbbb 00000009", 10),
        ("blob:bytes? throttle_time_ms:i32", "ffffffff 00000009", 4),
        ("blob:records throttle_time_ms:i32", "00000003 aaaaaa 00000009", 7),
        ("~ pairs:[a:i16 b:i8] throttle_time_ms:i32", "03 aaaaaa 00 bbbbbb 01 00 01 ff 00000009", 12),
        ("~ s:{a:i16} throttle_time_ms:i32", "aaaa 00 00000009", 3),
        ("~ s:{a:i16}? throttle_time_ms:i32", "01 aaaa 00 00000009", 4),
        ("~ s:{a:i16}? throttle_time_ms:i32", "ff 00000009", 1),
        ("~ name:string? throttle_time_ms:i32", "00 00000009", 1),
        ("~ name:string? throttle_time_ms:i32", "8000 00000009", 2),
        ("~ name:string throttle_time_ms:i32", "8300 6162 00000009", 4),
        ("~ ids:[uuid]? throttle_time_ms:i32", "00 00000009", 1),
        ("s:{a:i16 name:string} throttle_time_ms:i32", "aaaa 0001 61 00000009", 5),
    ],
)
def test_compiled_walk_steps_over_every_kind_of_field(layout: str, body: str, throttle: int) -> None:
    data = b"head" + bytes.fromhex(body)
    walk = compile_walk(layout, None)
    assert walk(data, 4, [], []) == 4 + throttle
    with pytest.raises((IndexError, struct.error)):
        walk(data[:-1], 4, [], [])


@pytest.mark.parametrize("path", ["brokers", "#0 brokers"])
def test_compiled_walk_finds_addresses_in_an_array(path: str) -> None:
    layout = f"~ {path}:[node_id:i32 host:string port:i32]"
    content = bytes.fromhex("02 00000007 0268 00000009 00")
    data = content if path == "brokers" else b"\x01\x00" + bytes((len(content),)) + content
    endpoints: list[Endpoint] = []
    tags: list[Tag] = []
    assert compile_walk(layout, path)(data, 0, endpoints, tags) == -1
    shift = len(data) - len(content)
    assert endpoints == [Endpoint(7, b"h", 9, 1 + shift, 5 + shift, 7 + shift)]
    assert tags == ([] if path == "brokers" else [Tag(2, 3, 3 + len(content))])


def test_compiled_walk_skips_other_tags_by_size() -> None:
    layout = "~ #0 other:{a:i16} #1 brokers:[node_id:i32 host:string port:i32] #2 more:bytes"
    content = bytes.fromhex("02 00000007 0268 00000009 00")
    data = b"\x03" + b"\x00\x01\xff" + b"\x01" + bytes((len(content),)) + content + b"\x02\x00"
    endpoints: list[Endpoint] = []
    compile_walk(layout, "#1 brokers")(data, 0, endpoints, [])
    assert [endpoint.host for endpoint in endpoints] == [b"h"]


@pytest.mark.parametrize("wrong", [-1, 1])
def test_tag_with_addresses_ends_where_its_size_says(wrong: int) -> None:
    content = bytes.fromhex("02 00000007 0268 00000009 00")
    data = b"\x01\x00" + bytes((len(content) + wrong,)) + content + bytes(20)
    with pytest.raises(ProtocolError):
        compile_walk("~ #0 brokers:[node_id:i32 host:string port:i32]", "#0 brokers")(data, 0, [], [])
