import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.table import ApiSpec
from tests.protocol.fuzz import ALL_SPECS, fuzz, read_anything

INPUTS = 3000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_mutated_frames_raise_only_protocol_errors(seed: int) -> None:
    assert fuzz(random.Random(seed), lambda count: count < INPUTS) == INPUTS


@given(st.binary(max_size=60), st.sampled_from(ALL_SPECS), st.integers(0, 60))
def test_arbitrary_bytes_raise_only_protocol_errors(data: bytes, spec: ApiSpec, cut: int) -> None:
    read_anything(data, spec, [min(cut, len(data))])
