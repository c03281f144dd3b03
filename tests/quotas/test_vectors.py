"""Every case of quotas.json, through the same runner as ``python -m tests.conformance``."""

import json
from pathlib import Path

import pytest

from tests.conformance.model import Outcome, Skipped
from tests.conformance.quotas import run

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "quotas.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("outcome", [pytest.param(outcome, id=title) for title, outcome in run(VECTORS)])
def test_quota_vector_case_gives_the_expected_outcome(outcome: Outcome) -> None:
    if isinstance(outcome, Skipped):
        pytest.skip(outcome.reason)
    assert outcome is None
