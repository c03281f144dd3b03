"""One switch, whoever turns it."""

import pytest
from structlog.testing import capture_logs

from config.settings import Mode
from proxy.control.mode import ModeSwitch

pytestmark = pytest.mark.asyncio


class Changed:
    def __init__(self) -> None:
        self.modes: list[Mode] = []

    async def change(self, mode: Mode) -> None:
        if mode == "off":
            raise OSError
        self.modes.append(mode)


async def test_the_configuration_turns_it_only_when_it_says_something_new() -> None:
    changed = Changed()
    switch = ModeSwitch("enforce", changed.change)
    assert await switch.turn("shadow", who="admin token", source="127.0.0.1") == "enforce"
    await switch.configure("enforce", "sluice.yaml")
    assert switch.mode == "shadow", "a reload for something else undoes nothing"
    await switch.configure("shadow", "sluice.yaml")
    await switch.configure("enforce", "sluice.yaml")
    assert (switch.mode, changed.modes, switch.changes) == ("enforce", ["shadow", "enforce"], 2)


async def test_mode_set_to_its_current_value_changes_and_logs_nothing() -> None:
    changed = Changed()
    switch = ModeSwitch("enforce", changed.change)
    with capture_logs() as logs:
        assert await switch.turn("enforce", who="signal", source="SIGUSR2") == "enforce"
    assert (logs, changed.modes, switch.changes) == ([], [], 0)


async def test_failing_mode_change_leaves_the_mode() -> None:
    switch = ModeSwitch("enforce", Changed().change)
    with pytest.raises(OSError):  # noqa: PT011  the one that was raised
        await switch.turn("off", who="signal", source="SIGUSR1")
    assert (switch.mode, switch.changes) == ("enforce", 0)
