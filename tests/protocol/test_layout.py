import pytest

from protocol.layout import ARRAY, STRUCT, Field, Layout, fixed_offset, parse_layout
from protocol.table import SPECS


def test_layout_text_of_every_form_is_parsed() -> None:
    text = "~ id:i32 name:string? ids:[i32]? parts:[n:i64 host:string] cursor:{a:i8}? #0 e:{b:i16} #2 tail:bytes"
    assert parse_layout(text) == Layout(
        True,
        (
            Field("id", "i32"),
            Field("name", "string", nullable=True),
            Field("ids", ARRAY, nullable=True, element="i32"),
            Field("parts", ARRAY, fields=(Field("n", "i64"), Field("host", "string"))),
            Field("cursor", STRUCT, nullable=True, fields=(Field("a", "i8"),)),
            Field("e", STRUCT, tag=0, fields=(Field("b", "i16"),)),
            Field("tail", "bytes", tag=2),
        ),
    )


@pytest.mark.parametrize(("text", "flexible"), [("", False), ("~", True)])
def test_empty_layout_text_has_no_fields(text: str, flexible: bool) -> None:
    assert parse_layout(text) == Layout(flexible, ())


def written(field: Field) -> str:
    inner = field.element or " ".join(map(written, field.fields))
    kind = f"{field.type[0]}{inner}{field.type[1]}" if field.type in (ARRAY, STRUCT) else field.type
    return ("" if field.tag is None else f"#{field.tag} ") + f"{field.name}:{kind}" + "?" * field.nullable


def test_every_layout_of_the_table_parses_and_writes_back() -> None:
    for spec in SPECS.values():
        for text in (spec.request_layout, spec.response_layout):
            layout = parse_layout(text)
            assert " ".join(["~"] * layout.flexible + [written(field) for field in layout.fields]) == text


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("throttle_time_ms:i32 rest:string", 0),
        ("~ error_code:i16 expiry_timestamp_ms:i64 throttle_time_ms:i32", 10),
        ("a:uuid b:bool throttle_time_ms:i32", 17),
        ("~ topics:[name:string] throttle_time_ms:i32", None),
        ("name:string? throttle_time_ms:i32", None),
    ],
)
def test_fixed_offset_of_the_throttle_field_is_computed(text: str, offset: int | None) -> None:
    assert fixed_offset(text, "throttle_time_ms") == offset


@pytest.mark.parametrize("text", ["", "~", "error_code:i16", "topics:[name:string]"])
def test_fixed_offset_of_a_missing_field_is_an_error(text: str) -> None:
    with pytest.raises(KeyError):
        fixed_offset(text, "throttle_time_ms")
