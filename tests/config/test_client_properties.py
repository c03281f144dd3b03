import pytest

from config.client_properties import parse_jaas, parse_properties

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {}),
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username=alice\n  password=secret", {"username": "alice", "password": "secret"}),
        (r'password="a\"b\\c;d=e"', {"password": r'a"b\c;d=e'}),
        ('password = ";"', {"password": ";"}),
        ('password="="', {"password": "="}),
        ("/* one */ username=alice // two\n password=x # three\n", {"username": "alice", "password": "x"}),
    ],
)
def test_jaas_options_are_parsed_to_a_mapping(options: str, expected: dict[str, str]) -> None:
    assert parse_jaas(f"{MODULE} required {options};") == ("PlainLoginModule", expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin"),
        ("PlainLoginModule;", "does not begin"),
        ("PlainLoginModule maybe;", "does not begin"),
        ('PlainLoginModule required password="canary"', "does not end"),
        ('PlainLoginModule required password="canary; ;', "a quote that is not closed"),
        ("A required; B required password=canary;", "does not end"),
        ('PlainLoginModule required password "canary";', "not written as"),
        ('PlainLoginModule required password="canary" canary;', "not written as"),
    ],
)
def test_refused_jaas_config_is_never_quoted(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        parse_jaas(text)
    assert "canary" not in str(refused.value)
