import pytest

from config.problems import InvalidValue
from proxy.identity.mapping_rule import Case, NoMatchingRule, naming_rule


@pytest.mark.parametrize(("case", "result"), [("", "äẞİ"), ("L", "äßi̇"), ("U", "Äẞİ")])
def test_the_letter_a_rule_ends_with(case: str, result: str) -> None:
    assert Case(case).of("äẞİ") == result


def test_a_name_is_told_in_part() -> None:
    assert str(NoMatchingRule("a\nb")) == "'a\\nb': no rule applies to it"
    assert len(str(NoMatchingRule("x" * 32768))) < 300


def test_which_of_the_rules_is_wrong() -> None:
    with pytest.raises(InvalidValue, match=r"^rule 'RULE:x': is wrong$") as raised, naming_rule("RULE:x"):
        raise InvalidValue("is wrong", "right it")
    assert raised.value.hint == "right it"
