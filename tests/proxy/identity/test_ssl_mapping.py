import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.problems import InvalidValue
from proxy.identity.certificates.ssl_mapping import parse_rules
from proxy.identity.mapping_rule import NoMatchingRule


# What Kafka 4.3.1's SslPrincipalMapper gives.
@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (" DEFAULT\n", "", ""),
        ("RULE:a/b/L,RULE:c/D/U", "c", "D"),
        ("RULE:a/b/,,DEFAULT", "x", "x"),
        ("RULE:a/b/ ,\n DEFAULT", "x", "x"),
        ("RULE:a,b/c,d/", "a,b", "c,d"),
        ("RULE:a//", "a", ""),
        ("RULE:/b/", "", "b"),
        ("RULE:a\\/b/x\\/y/", "a/b", "x/y"),
        ("RULE:a\nb/c/", "a\nb", "c"),
        ("RULE:(.*)/$1x/", "abc", "abcxx"),
        ("RULE:CN=(.*?)/$1/", "CN=abc", "abc"),
        ("RULE:CN=(.*)/$1/L", "CN=ÄB", "äb"),
        ("RULE:(a)/$1$2/", "a", "a$2"),
        ("RULE:(a)/$20/", "a", "$20"),
        ("RULE:(a)/$12$01/", "a", "a2a"),
        ("RULE:((((((((((a))))))))))/$102/", "a", "a2"),
        ("RULE:(?<x>a)/${x}/", "a", "a"),
        ("RULE:(a)/\\$1\\\\/", "a", "$1\\"),
        ("RULE:^CN=(.*)$/a,b $1/ , DEFAULT", "CN=w", "a,b w"),
        ("RULE:CN=([^,]*).*/$1/", "CN=admin\\,O\\=x,O=y", "admin\\"),
    ],
)
def test_ssl_mapping_rules_give_user_of_subject(rules: str, name: str, user: str) -> None:
    assert parse_rules(rules).user(name) == user


@pytest.mark.parametrize(("rules", "name"), [("", "CN=a"), ("RULE:CN=a/a/", "CN=a,O=b"), ("RULE:a.*/b/", "a\nb")])
def test_subject_without_matching_rule_gives_no_user(rules: str, name: str) -> None:
    with pytest.raises(NoMatchingRule, match="no rule applies to it"):
        parse_rules(rules).user(name)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("default", r"'default' is no rule$"),
        ("DEFAULT,FOO", r"'FOO' is no rule$"),
        ("DEFAULT DEFAULT", r"'DEFAULT DEFAULT' is no rule$"),
        ("RULE:a/b", r"'RULE:a/b' is no rule$"),
        ("RULE:a/b/LX", r"'RULE:a/b/LX' is no rule$"),
        ("RULE:a/b/ RULE:c/d/", r"'RULE:a/b/ RULE:c/d/' is no rule$"),
        ("RULE:a/b/\nDEFAULT", r"there is no comma behind 'RULE:a/b/'$"),
        ("RULE:a\\\nb/c/", r"there is no comma behind 'RULE:a"),
        ("DEFAULT,RULE:[/b/", r"rule 'RULE:\[/b/': not taken: \[, at character 1"),
        ("RULE:\\hCN/b/", r"rule .*: not taken: \\h, at character 1 of "),
        ("RULE:a/$1/", r"rule 'RULE:a/\$1/': \$1 in '\$1': the pattern has no such group$"),
        ("RULE:(a)/$2$3/", r"rule .*: \$3 in "),
        ("RULE:(a)/$/", r"rule .*: a \$ that means nothing"),
        ("RULE:(a)/$99999999999/", r"rule .*: \$99999999999 is too large"),
    ],
)
def test_invalid_ssl_mapping_rules_are_refused_when_parsed(rules: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{complaint}"):
        parse_rules(rules)


@given(st.text(st.sampled_from("DEFAULTRULE:()$1/LU,. \n\\x"), max_size=30), st.text(max_size=6))
def test_any_text_is_rules_or_is_refused(rules: str, name: str) -> None:
    try:
        parse_rules(rules).user(name)
    except ValueError:
        return
