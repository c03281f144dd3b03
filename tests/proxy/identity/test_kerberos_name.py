import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.problems import InvalidValue
from proxy.identity.kerberos.name import parse_rules
from proxy.identity.mapping_rule import NoMatchingRule


# What Kafka 4.3.1's KerberosShortNamer gives with the default realm R.
@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (["DEFAULT"], "alice@R", "alice"),
        (["DEFAULT"], "kafka/host@R", "kafka"),
        (["DEFAULT"], "@R", ""),
        ([], "plain", "plain"),
        ([], "a/b", "a/b"),
        (["RULE:[1:$1]", "DEFAULT"], "a/b@R", "a"),
        (["RULE:[2:$2.$1@$0](.*@R)s/@.*//"], "a/b@R", "b.a"),
        (["RULE:[1:$1](a.*)", "RULE:[1:other]"], "b@X", "other"),
        (["RULE:[1:$1]s/(.)/<$1>/"], "ab@X", "<a>b"),
        (["RULE:[1:$1]s/(.)/<$1>/g"], "ab@X", "<a><b>"),
        (["RULE:[1:$1]s/z/$0/"], "ab@X", "ab"),
        (["RULE:[1:$1]/L"], "MiXed@X", "mixed"),
        (["RULE:[1:$1]U"], "MiXed@X", "MIXED"),
        (["RULE:[1:$1]s/a/b/g/U"], "aa@X", "BB"),
        (["RULE:[2:$1]/"], "a/b@X", "a"),
        (["RULE:[2:$1]"], "a/@X", "a"),
        (["RULE:[1:]()"], "a@X", ""),
    ],
)
def test_kerberos_rules_give_user_of_principal(rules: list[str], principal: str, user: str) -> None:
    assert parse_rules(rules, "R").user(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "why"),
    [
        ([], "alice@R", "no rule applies to it"),
        (["DEFAULT"], "alice@X", "no rule applies to it"),
        (["RULE:[3:$1]"], "alice@R", "no rule applies to it"),
        (["RULE:[1:$1](a)", "DEFAULT"], "b@X", "no rule applies to it"),
        (["RULE:[1:$1@$0]", "DEFAULT"], "a@R", "a rule left / or @ in it"),
        (["RULE:[2:$1/$2]/L"], "a/b@R", "a rule left / or @ in it"),
        (["DEFAULT"], "a/b/c@R", "no name of one or two components"),
        (["DEFAULT"], "a@b@R", "no name of one or two components"),
    ],
)
def test_principal_without_matching_rule_gives_no_user(rules: list[str], principal: str, why: str) -> None:
    with pytest.raises(NoMatchingRule, match=why):
        parse_rules(rules, "R").user(principal)


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("", r"'' is no rule$"),
        ("DEFAULT/L", r"'DEFAULT/L' is no rule$"),
        ("RULE:[1:$1]/X", r"'RULE:\[1:\$1\]/X' is no rule$"),
        ("RULE:[1:$1](a)b)", r".* is no rule$"),
        ("RULE:[x:$1]", r".* is no rule$"),
        ("RULE:[:$1]", r"rule 'RULE:\[:\$1\]': says not for how many components it is$"),
        ("RULE:[1:$2]", r"rule .*: \$2 in the format is none of its components$"),
        ("RULE:[1:$]", r"rule .*: \$ in the format is none of its components$"),
        ("RULE:[1:$99999999999]", r"rule .*: \$99999999999 in the format"),
        ("RULE:[1:$1]([)", r"rule .*: not taken: \[, at character 1"),
        ("RULE:[1:$1]s/[//", r"rule .*: not taken: \[, at character 1"),
        ("RULE:[1:$1]s/a/$1/", r"rule .*: \$1 in '\$1': the pattern has no such group$"),
    ],
)
def test_invalid_kerberos_rule_is_refused_when_parsed(rule: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{complaint}"):
        parse_rules(["DEFAULT", rule], "R")


@given(st.text(st.sampled_from("RULE:[12$0](a.*)s/g LU@"), max_size=24), st.text(max_size=8))
def test_any_text_is_a_rule_or_is_refused(rule: str, principal: str) -> None:
    try:
        user = parse_rules([rule], "R").user(principal)
    except ValueError:
        return
    assert user == principal or not set(user) & set("/@")
