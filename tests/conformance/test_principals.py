import json
from pathlib import Path

import pytest

from tests.conformance.__main__ import format_of
from tests.conformance.model import Failure
from tests.conformance.principals import CHECKS, run

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "principals.json").read_text(encoding="utf-8"))


def outcome_of(member: str, **case: object) -> object:
    ((title, outcome),) = run({member: [case]})
    assert title == f"{member}[0]"
    return outcome


@pytest.mark.parametrize("member", CHECKS)
def test_vector_format_is_recognised_by_any_member(member: str) -> None:
    assert format_of({member: []}, Path("file.json")).run is run


@pytest.mark.parametrize("member", CHECKS)
def test_every_expected_member_is_compared(member: str) -> None:
    case = next(case for case in VECTORS[member] if "error" not in case)
    assert outcome_of(member, **case) is None
    for expected in set(case) - CHECKS[member][1]:
        assert isinstance(outcome_of(member, **case | {expected: "another"}), Failure)
    assert isinstance(outcome_of(member, **case, unknown=1), Failure)
    assert isinstance(outcome_of(member, **case, error="it has one too"), Failure)


@pytest.mark.parametrize("member", CHECKS)
def test_vector_answer_instead_of_expected_error_fails(member: str) -> None:
    case = next(case for case in VECTORS[member] if "error" not in case)
    given = {name: value for name, value in case.items() if name in CHECKS[member][1]}
    assert isinstance(outcome_of(member, **given, error="any"), Failure)
    assert isinstance(outcome_of(member, **given), Failure)
    assert isinstance(outcome_of(member, error="any"), Failure)


def test_an_error_where_an_answer_is_expected_fails() -> None:
    assert isinstance(outcome_of("scram_first", message="", username="a"), Failure)
    assert outcome_of("scram_first", message="", error="any text") is None
    assert outcome_of("x509_names", cert_der_base64="AA==", error="any") is None
