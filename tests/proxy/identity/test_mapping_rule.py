import pytest

from config.problems import InvalidValue
from proxy.identity.mapping_rule import CASES, NoMatchingRule, naming_rule


@pytest.mark.parametrize(("case", "result"), [("", "äẞİ"), ("L", "äßi̇"), ("U", "Äẞİ")])
def test_rule_suffix_l_or_u_changes_case_of_user(case: str, result: str) -> None:
    assert CASES[case]("äẞİ") == result


def test_a_name_is_told_in_part() -> None:
    assert str(NoMatchingRule("a\nb")) == "'a\\nb': no rule applies to it"
    assert len(str(NoMatchingRule("x" * 32768))) < 300


def test_error_in_mapping_rule_names_the_rule() -> None:
    with pytest.raises(InvalidValue, match=r"^rule 'RULE:x': is wrong$") as raised, naming_rule("RULE:x"):
        raise InvalidValue("is wrong", "right it")
    assert raised.value.hint == "right it"
