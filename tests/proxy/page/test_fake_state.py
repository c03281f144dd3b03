"""The state by hand has the shapes of the real one."""

import pytest

from proxy.state.resources import RESOURCES
from tests.proxy.page.fake_state import FakeState


@pytest.mark.parametrize("resource", RESOURCES)
def test_fake_state_items_have_fields_of_real_state(resource: str) -> None:
    state = FakeState()
    not_lists = {"instance": [state.instance], "owners": [state.owners], "explain": state.explained}
    given = not_lists.get(resource) or state.items[resource]
    for item in given:
        assert item.keys() == RESOURCES[resource].fields.keys()
