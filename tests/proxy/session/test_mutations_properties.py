"""Any traffic with changes of topics in it: every request is answered once, in order, and as its broker has it."""

from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.table import SPECS
from tests.harness.examples import examples
from tests.proxy.playbook import Play, list_offsets, list_offsets_answer, produce, produce_answer
from tests.proxy.session.mutating import (
    BURST,
    CREATE,
    DELETE,
    GROW,
    LIMIT,
    OLD_CREATE,
    OLD_DELETE,
    Known,
    answer,
    create,
    delete,
    grow,
    names,
    play_with,
    said,
)

PRESENT = {"a": 3, "b": 9, "c": 1}
MOST = 40
_TOPICS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(1, MOST)), min_size=1, max_size=4, unique_by=lambda t: t[0]
)
Sent = tuple[int, list[tuple[str, int]]]
_SENT = st.lists(st.tuples(st.sampled_from((CREATE, OLD_CREATE, DELETE, OLD_DELETE, GROW, 0, 2)), _TOPICS), max_size=12)


def request(number: int, version: int, topics: list[tuple[str, int]]) -> bytes:
    if version in (CREATE, OLD_CREATE):
        return create(number, *topics, version=version)
    if version in (DELETE, OLD_DELETE):
        return delete(number, *(name for name, _ in topics), version=version)
    if version == GROW:
        return grow(number, *topics)
    return produce(number, 20) if version == 0 else list_offsets(number)


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = 4 + unpack_from(">i", data)[0]
        found.append(data[:size])
        data = data[size:]
    return found


def broker_answer(frame: bytes) -> tuple[bytes, list[str]]:
    """Return what a broker says to a request that it carries out, and the topics in it."""
    _, number, correlation_id = unpack_from(">iii", frame)
    if number >> 16 == 0:
        return produce_answer(correlation_id), []
    if number >> 16 == 2:
        return list_offsets_answer(correlation_id), []
    topics = names(number, frame)
    return answer(number, correlation_id, *((name, 0) for name in topics)), topics


def pieces(data: st.DataObject, whole: bytes) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    return [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@pytest.mark.long
@examples(2)
@given(data=st.data(), sent=_SENT, mode=st.sampled_from(["enforce", "shadow", "off"]))
def test_random_mutations_are_answered_once_in_order_as_carried_out(
    data: st.DataObject, sent: list[Sent], mode: str
) -> None:
    play = play_with(partitions=Known(PRESENT), mode=mode)
    chunks = pieces(data, b"".join(request(number, *each) for number, each in enumerate(sent)))
    to_broker = to_client = b""
    reached: list[list[str]] = []
    answers: list[bytes] = []
    for _ in range(20_000):
        if chunks and not play.client.paused:
            to_broker += play.from_client(chunks.pop(0))
        elif to_broker:
            for frame in frames(to_broker):
                said_of_it, topics = broker_answer(frame)
                reached.append(topics)
                answers.append(said_of_it)
            to_broker = b""
        elif answers:
            for piece in pieces(data, answers.pop(0)):
                to_client += play.from_broker(piece)
        elif chunks or len(frames(to_client)) < len(sent):
            play.loop.advance(500)
        else:
            break
        to_broker += play.broker.take()
        to_client += play.client.take()
    assert not play.rejected
    got = frames(to_client)
    assert [unpack_from(">i", each, 4)[0] for each in got] == list(range(len(sent)))
    carried_out = []
    for (version, asked), frame in zip(sent, got, strict=True):
        if version in (0, 2):
            continue
        errors = said(version, frame)
        assert set(errors) == {name for name, _ in asked}
        assert set(errors.values()) <= {0, 89}
        if version in (OLD_CREATE, OLD_DELETE) or mode != "enforce":
            assert not any(errors.values())
        carried_out.append([name for name, _ in asked if errors[name] == 0])
    assert [each for each in carried_out if each] == [each for each in reached if each]
    _check_the_bucket(play, mode)


def _check_the_bucket(play: Play, mode: str) -> None:
    states = play.engine.usage(play.loop.now_ms)
    if not states or mode == "off":
        return
    (state,) = states
    elapsed_s = (play.loop.now_ms - 1_000_000) / 1000
    assert state.tokens is not None
    if mode == "enforce":
        assert state.tokens <= BURST
        most = LIMIT * elapsed_s + BURST - state.tokens  # what the bucket has given since
        assert state.charged_total <= most + 1e-6
    account = play.session.identity.account
    assert account.meter.use_of(state.kind).used == state.charged_total


def test_modelled_mutation_requests_and_answers_match_the_specs() -> None:
    for version in (CREATE, OLD_CREATE, DELETE, OLD_DELETE, GROW):
        frame = request(3, version, [("a", 1), ("b", 2)])
        assert names(version, frame) == ["a", "b"]
        assert said(version, broker_answer(frame)[0]) == {"a": 0, "b": 0}
        assert version in SPECS
