"""Every case of principals.json, through the same runner as ``python -m tests.conformance``."""

import json
from pathlib import Path

import pytest

from tests.conformance.model import Outcome
from tests.conformance.principals import run

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "principals.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("outcome", [pytest.param(outcome, id=title) for title, outcome in run(VECTORS)])
def test_principals_vector_case_gives_its_expected_outcome(outcome: Outcome) -> None:
    assert outcome is None
