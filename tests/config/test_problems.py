import pytest

from config.problems import (
    ConfigError,
    InvalidValue,
    InvalidValues,
    Problem,
    field_path,
    holds_a_variable,
    suggestion,
)


def test_a_problem_says_what_and_where() -> None:
    problem = Problem("sluice.yaml", 3, 7, "listeners[0].bind", "has no port", "write host:port")
    assert str(problem) == "sluice.yaml:3:7: listeners[0].bind: has no port; write host:port"


def test_problem_of_the_whole_file_has_no_line() -> None:
    assert str(Problem("sluice.yaml", 0, 0, "", "no such file")) == "sluice.yaml: no such file"


def test_problems_stand_in_the_order_of_the_file() -> None:
    places = [(3, 1), (1, 9), (1, 2)]
    error = ConfigError(Problem("f", line, column, "", "wrong") for line, column in places)
    assert [(problem.line, problem.column) for problem in error.problems] == [(1, 2), (1, 9), (3, 1)]
    assert str(error) == "f:1:2: wrong\nf:1:9: wrong\nf:3:1: wrong"


def test_field_path_is_written_with_dots_and_indexes() -> None:
    assert field_path(()) == ""
    assert field_path(("quotas", 12, "entity", "client-id")) == "quotas[12].entity.client-id"


def test_misspelt_key_is_suggested_or_all_are_listed() -> None:
    assert suggestion("refrsh", ["refresh", "name"]) == "did you mean refresh?"
    assert suggestion("zzz", ["refresh", "name"]) == "known here: refresh, name"


def test_several_wrong_values_are_kept() -> None:
    wrong = InvalidValues()
    for index in range(3):
        with wrong.at("item", index):
            if index != 1:
                raise InvalidValue(f"{index} is wrong")
    wrong.add(("other",), "is missing")
    assert [(steps, invalid.message) for steps, invalid in wrong.found] == [
        (("item", 0), "0 is wrong"),
        (("item", 2), "2 is wrong"),
        (("other",), "is missing"),
    ]
    with pytest.raises(InvalidValues):
        wrong.raise_if_any()


def test_quoted_file_content_is_escaped_and_cut() -> None:
    invalid = InvalidValue("\x1b[2J is wrong\n" + "9" * 5000, "write \x1b[2J" + "9" * 5000)
    assert invalid.message.startswith(r"\x1b[2J is wrong\n99")
    assert invalid.hint.startswith(r"write \x1b[2J99")
    assert len(invalid.message + invalid.hint) < 700


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("${NAME}", True),
        ("a$NAME", True),
        ("$(NAME)", True),
        ("{{ name }}", True),
        ("$", False),
        ("HOST$", False),
        ("$1", False),
        ("{default: true}", False),
        ("a}}", False),
    ],
)
def test_unexpanded_variable_in_a_value_is_detected(text: str, held: bool) -> None:
    assert holds_a_variable(text) is held
