"""The state by hand has the shapes of the real one."""

import pytest

from proxy.state.resources import RESOURCES
from tests.proxy.page.fake_state import FakeState


@pytest.mark.parametrize("resource", RESOURCES)
def test_its_items_have_the_fields_of_the_real_ones(resource: str) -> None:
    state = FakeState()
    given = {"instance": [state.instance], "explain": state.explained}.get(resource) or state.items[resource]
    for item in given:
        assert item.keys() == RESOURCES[resource].fields.keys()
