import pytest

from config.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


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
