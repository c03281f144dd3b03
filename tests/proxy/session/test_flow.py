"""The table of a session's states: whole, and true of every session that the tests play."""

import ast
from pathlib import Path

import pytest

import proxy.session
from proxy.session import flow
from proxy.session.flow import ANSWERING, CONNECTING, FINISHED, IN_LINE, THROTTLED, TURN, Event, begin, end
from tests.proxy.playbook import Play
from tests.proxy.transitions import TABLE, UnnamedTransitionError

FOLDER = Path(proxy.session.__file__).parent
REASONS = {
    name: value
    for name, value in vars(flow).items()
    if name.isupper() and isinstance(value, int) and value.bit_count() == 1
}


def test_the_table_has_every_event_and_every_reason() -> None:
    assert list(TABLE) == list(Event)
    begun = ended = 0
    for row in TABLE.values():
        begun |= row.begins
        ended |= row.ends
    assert begun == sum(REASONS.values())
    assert begun & ~ended == flow.FINISHED | flow.DRAINING, "all others end"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_reasons_change_by_transitions_alone(path: Path) -> None:
    """``reasons`` of a side is 0 at first, and then what ``begin`` and ``end`` return."""
    for node in ast.walk(ast.parse(path.read_text())):
        targets = [node.target] if isinstance(node, ast.AugAssign) else getattr(node, "targets", [])
        if not any(isinstance(target, ast.Attribute) and target.attr == "reasons" for target in targets):
            continue
        assert isinstance(node, ast.Assign), f"{path.name}: {ast.unparse(node)}"
        by = ast.unparse(node.value)
        assert by == "0" or by.startswith(("begin(Event.", "begin(event,", "end(Event.", "end(event,")), by


@pytest.mark.parametrize(
    ("event", "before", "begun", "ended"),
    [
        (Event.CONNECTED, 0, 0, CONNECTING),
        (Event.THROTTLE_OVER, ANSWERING, 0, THROTTLED),
        (Event.ANSWERED, ANSWERING | THROTTLED, 0, ANSWERING),
        (Event.NEXT, IN_LINE, 0, IN_LINE),
        (Event.READ, 0, THROTTLED, 0),
        (Event.READ, TURN, TURN, 0),
        (Event.HALF_CLOSED, FINISHED, FINISHED, 0),
    ],
)
def test_an_unnamed_transition_is_an_error(event: Event, before: int, begun: int, ended: int) -> None:
    with pytest.raises(UnnamedTransitionError):
        _ = begin(event, before, begun) if begun else end(event, before, ended)


def test_a_session_is_watched() -> None:
    play = Play(connected=False)
    play.session.requests.reasons = 0
    with pytest.raises(UnnamedTransitionError):
        play.session.connected(play.broker, 1)
