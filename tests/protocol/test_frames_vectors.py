"""Every case of frames.json, through the same runner as ``python -m tests.conformance``."""

import json
from pathlib import Path

import pytest

from tests.conformance.frames import run
from tests.conformance.model import Outcome

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "frames.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("outcome", [pytest.param(outcome, id=title) for title, outcome in run(VECTORS)])
def test_frame_vector_case_gives_the_expected_outcome(outcome: Outcome) -> None:
    assert outcome is None
