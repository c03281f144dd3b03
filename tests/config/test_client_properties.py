import pytest

from config.client_properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("  a\t:\tb\r\nc d\re", {"a": "b", "c": "d", "e": ""}),
        ("# a=b\n! c=d\n\n  # e=f\n", {}),
        ("a=1\na=2", {"a": "2"}),
        ("a==b", {"a": "=b"}),
        ("a=b#c", {"a": "b#c"}),
        (r"a\ b\=c\:d=e", {"a b=c:d": "e"}),
        (r"a=\ttab\u017c\n\q\\", {"a": "\ttabż\nq\\"}),
        ("a=b,\\\n   c,\\\r\n\td", {"a": "b,c,d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
        ("a=b\\", {"a": "b"}),
        ("=b", {"": "b"}),
        ('sasl.jaas.config=X required password="p\\\\"=:";', {"sasl.jaas.config": 'X required password="p\\"=:";'}),
    ],
)
def test_client_properties_are_parsed_as_in_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected
