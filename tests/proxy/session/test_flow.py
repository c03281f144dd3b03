"""The table of a session's states: whole, and true of every session that the tests play."""

import ast
from pathlib import Path

import pytest

import proxy.session
from proxy.session import flow
from proxy.session.flow import ANSWERING, CONNECTING, FINISHED, HELD_BACK, IN_LINE, THROTTLED, TURN, WALKED
from tests.proxy.playbook import Play
from tests.proxy.transitions import TABLE, UnnamedTransitionError, reasons

FOLDER = Path(proxy.session.__file__).parent
REASONS = {
    name: value
    for name, value in vars(flow).items()
    if name.isupper() and isinstance(value, int) and value.bit_count() == 1
}


def test_the_table_has_every_reason() -> None:
    assert list(TABLE) == list(REASONS)
    assert reasons(client=True) & ~flow.UNTAKEN & ~flow.RAW_TOKENS & reasons(broker=True) == 0
    assert reasons(broker=True) == flow.OF_ANSWERS | flow.UNTAKEN | flow.RAW_TOKENS
    assert sum(REASONS.values()) & ~reasons(ends=True) == flow.FINISHED | flow.DRAINING, "all others end"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_reasons_change_by_transitions_alone(path: Path) -> None:
    """``reasons`` of a side is 0 at first, and then changed by ``begin`` and ``end`` of ``Flow``."""
    changed = []
    for node in ast.walk(ast.parse(path.read_text())):
        targets = [node.target] if isinstance(node, ast.AugAssign) else getattr(node, "targets", [])
        if any(isinstance(target, ast.Attribute) and target.attr == "reasons" for target in targets):
            changed.append(ast.unparse(node))
    in_flow = ["self.reasons = 0", "self.reasons |= reasons", "self.reasons &= ~reasons"]
    assert changed == (in_flow if path.name == "flow.py" else [])


@pytest.mark.parametrize(
    ("before", "begun", "ended"),
    [
        (0, 0, CONNECTING),
        (ANSWERING, 0, THROTTLED),
        (ANSWERING | THROTTLED, 0, ANSWERING),
        (TURN, 0, IN_LINE),
        (0, WALKED, 0),
        (HELD_BACK, 0, HELD_BACK),
        (TURN, TURN, 0),
        (FINISHED, FINISHED, 0),
        (FINISHED, 0, FINISHED),
    ],
)
def test_an_unnamed_transition_is_an_error(before: int, begun: int, ended: int) -> None:
    side = Play().session.requests
    side.reasons = before
    change, changed = (side.begin, begun) if begun else (side.end, ended)
    with pytest.raises(UnnamedTransitionError):
        change(changed)


def test_client_side_pause_begun_on_broker_side_is_refused() -> None:
    with pytest.raises(UnnamedTransitionError):
        Play().session.answers.begin(THROTTLED)


def test_unnamed_transition_of_a_session_is_an_error() -> None:
    play = Play(connected=False)
    play.session.requests.reasons = 0
    with pytest.raises(UnnamedTransitionError):
        play.session.connected(play.broker, 1)
