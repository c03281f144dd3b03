"""A Produce to the topic of usage records closes the connection, wherever in it the name is and however it comes."""

from collections.abc import Sequence
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.usage import UsageTopic
from protocol.errors import Cause, ProtocolError
from protocol.produce_topics import MOST_VERSION
from protocol.varint import encode_varint
from proxy.edge.protected_topics import Guard
from tests.protocol.test_produce_topics import body_of
from tests.proxy.playbook import Play, fetch, heartbeat, list_offsets, produce, produce_answer, request

TOPIC = "sluice-usage"


def play_of(*topics: str) -> Play:
    play = Play(connected=False)
    guard = Guard({topic.encode() for topic in topics}, play.broker.write, lambda: play.session.sasl.raw)
    play.session.connected(play.broker, 1, guard.write)
    return play


def produce_to(correlation_id: int, *topics: str, version: int = 7, records: int = 100) -> bytes:
    body = body_of(version, [(topic, [bytes(records)]) for topic in topics])
    return request(0, version, correlation_id, (b"\0" if version >= 9 else b"") + body)


@pytest.mark.parametrize("version", range(MOST_VERSION + 1))
def test_produce_to_protected_topic_closes_session_and_is_not_forwarded(version: int) -> None:
    for topics in ((TOPIC,), ("other", "another", TOPIC), (TOPIC, "other")):
        play = play_of(TOPIC)
        assert play.from_client(list_offsets(1)) == list_offsets(1)
        assert play.from_client(produce_to(2, *topics, version=version)) == b""
        assert [(side, error.cause) for side, error in play.rejected] == [("client", Cause.PROTECTED_TOPIC)]
        assert "sluice-usage" in str(play.rejected[0][1])
        assert (play.session.closed, play.client.closed, play.broker.closed) == (True, True, True)


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3, 8, 9, MOST_VERSION])
def test_cut_produce_to_protected_topic_never_reaches_broker_whole(version: int) -> None:
    data = heartbeat(1) + produce_to(2, "other", TOPIC, version=version)
    for cut in range(1, len(data)):
        play = play_of(TOPIC)
        passed = play.from_client(data[:cut])
        if not play.session.closed:
            passed += play.from_client(data[cut:])
        assert play.session.closed
        assert len(passed) < len(data) - 50
        assert data.startswith(passed)
    play = play_of(TOPIC)
    passed = b""
    for at in range(len(data)):
        passed += play.from_client(data[at : at + 1])
        if play.session.closed:
            break
    assert play.session.closed
    assert data.startswith(passed)
    assert len(passed) < len(data) - 50


def test_protected_topic_behind_many_records_closes_the_session() -> None:
    play = play_of(TOPIC)
    data = produce_to(1, "other", TOPIC, records=400_000)
    begun = 6 * 65_536
    assert sum(len(play.from_client(data[at : at + 65_536])) for at in range(0, begun, 65_536)) == begun
    assert not play.session.closed
    assert play.from_client(data[begun:]) == b""
    assert play.session.closed


def test_requests_without_protected_topic_pass_unchanged() -> None:
    requests = [
        *(heartbeat(1), produce(2, 300), fetch(3), produce(4, 0), produce_to(5, "sluice", "usage", version=9)),
        *(produce_to(6, "sluice-usage2", version=0), list_offsets(7), produce(8, 50, acks=0), produce(9, 0, version=3)),
    ]
    data = b"".join(requests)
    for size in (1, 7, 64, len(data)):
        play = play_of(TOPIC)
        passed = b"".join(play.from_client(data[at : at + size]) for at in range(0, len(data), size))
        assert passed == data
        assert not play.rejected


def test_without_protected_topics_nothing_stands_between() -> None:
    play = Play()
    assert play.session.requests.write == play.broker.write
    assert play.from_client(produce_to(1, TOPIC)) == produce_to(1, TOPIC)
    play = play_of("another")
    assert play.from_client(produce_to(1, TOPIC)) == produce_to(1, TOPIC)
    assert play.from_broker(produce_answer(1)) == produce_answer(1)


def test_a_produce_that_cannot_be_read_is_not_forwarded_either() -> None:
    play = play_of(TOPIC)
    broken = request(0, 7, 1, pack(">hhiihsi", -1, 1, 1000, 2, 1, b"t", 0))
    assert play.from_client(broken) == b""
    assert [error.cause for _, error in play.rejected] == [Cause.BAD_BODY]


def test_raw_sasl_tokens_are_not_checked_for_protected_topics() -> None:
    forwarded: list[bytes] = []
    raw = True
    guard = Guard({TOPIC.encode()}, forwarded.append, lambda: raw)
    token = produce_to(1, TOPIC)
    for piece in (token, token[:5], token[5:], b"\0\0\0\0", b"\0\0\0\3\0\0\0"):
        guard.write(piece)
    raw = False
    guard.write(heartbeat(2))
    with pytest.raises(ProtocolError):
        guard.write(token)
    assert b"".join(forwarded) == token * 2 + b"\0\0\0\0\0\0\0\3\0\0\0" + heartbeat(2)


@given(st.lists(st.sampled_from(["a", TOPIC, "b"]), max_size=4), st.sampled_from(range(MOST_VERSION + 1)), st.data())
def test_produce_in_any_pieces_is_refused_only_for_protected_topic(
    topics: Sequence[str], version: int, data: Any
) -> None:
    stream = heartbeat(1) + produce_to(2, *topics, version=version) + list_offsets(3)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    forwarded: list[bytes] = []
    guard = Guard({TOPIC.encode()}, forwarded.append, lambda: False)
    refused = False
    for begin, end in zip((0, *cuts), (*cuts, len(stream)), strict=True):
        try:
            guard.write(stream[begin:end])
        except ProtocolError:
            refused = True
            break
    assert refused == (TOPIC in topics)
    assert refused or b"".join(forwarded) == stream


def test_usage_topic_is_protected_by_default() -> None:
    assert UsageTopic().protect


def of_member(api_key: int, version: int, group: bytes, *, flexible: bool) -> bytes:
    """A request whose first field is a group."""
    name = bytes((len(group) + 1,)) + group if flexible else len(group).to_bytes(2, "big") + group
    return request(api_key, version, 1, (b"\0" if flexible else b"") + name + bytes(20))


MEMBERS = [
    *[(11, 5, False), (11, 9, True), (12, 3, False), (12, 4, True), (13, 3, False), (14, 5, True), (14, 3, False)],
    *[(68, 1, True), (76, 1, True), (88, 0, True)],
]


@pytest.mark.parametrize(("api_key", "version", "flexible"), MEMBERS)
def test_no_client_may_be_in_the_group_of_the_instances(api_key: int, version: int, flexible: bool) -> None:
    for group, passes in ((b"owners", False), (b"owners2", True), (b"owner", True), (b"", True)):
        whole = of_member(api_key, version, group, flexible=flexible)
        for split in range(len(whole)):
            passed: list[bytes] = []
            guard = Guard((), passed.append, lambda: False, None, b"owners")
            sent = list_offsets(1) + whole[:split], whole[split:] + list_offsets(2)
            if passes:
                for part in sent:
                    guard.write(part)
                assert b"".join(passed) == b"".join(sent)
                continue
            with pytest.raises(ProtocolError) as refused:
                list(map(guard.write, sent))
            assert refused.value.cause is Cause.PROTECTED_GROUP
            assert len(b"".join(passed)) < len(list_offsets(1) + whole)


DESCRIBING = [(15, 0, False), (15, 4, False), (15, 5, True), (69, 0, True), (77, 1, True), (89, 0, True)]


@pytest.mark.parametrize(("api_key", "version", "flexible"), DESCRIBING)
def test_describe_of_the_instances_group_is_refused_wherever_its_name_stands(
    api_key: int, version: int, flexible: bool
) -> None:
    def named(*groups: bytes) -> bytes:
        lengths = [encode_varint(len(each) + 1) if flexible else len(each).to_bytes(2, "big") for each in groups]
        number = encode_varint(len(groups) + 1) if flexible else len(groups).to_bytes(4, "big")
        names = b"".join(length + each for length, each in zip(lengths, groups, strict=True))
        return request(api_key, version, 1, (b"\0" if flexible else b"") + number + names + b"\0\0")

    for groups, passes in (
        ((b"owners",), False),
        ((b"", b"other", b"others", b"x" * 200, b"owners"), False),
        ((b"owner", b"owners2", b"swners"), True),
        ((), True),
    ):
        whole = named(*groups)
        for split in range(len(whole)):
            passed: list[bytes] = []
            guard = Guard((), passed.append, lambda: False, None, b"owners")
            sent = list_offsets(1) + whole[:split], whole[split:] + list_offsets(2)
            if passes:
                for part in sent:
                    guard.write(part)
                assert b"".join(passed) == b"".join(sent)
                continue
            with pytest.raises(ProtocolError) as refused:
                list(map(guard.write, sent))
            assert refused.value.cause is Cause.PROTECTED_GROUP
            assert len(b"".join(passed)) < len(list_offsets(1) + whole)
        if not passes:
            guard = Guard((), lambda _: None, lambda: False, None, b"owners")
            with pytest.raises(ProtocolError):
                list(map(guard.write, (whole[at : at + 1] for at in range(len(whole)))))


@pytest.mark.parametrize("flexible", [False, True])
def test_long_group_id_passes_without_being_gathered(flexible: bool) -> None:
    """A client that claims a name of 30,000 bytes: they pass as they come, and nothing of them is kept."""
    length = encode_varint(30_001) if flexible else (30_000).to_bytes(2, "big")
    version = 9 if flexible else 5
    whole = request(11, version, 1, (b"\0" if flexible else b"") + length + bytes(30_000))
    guard = Guard((), lambda _: None, lambda: False, None, b"owners")
    for at in range(0, len(whole), 100):
        guard.write(whole[at : at + 100])
        assert len(guard._held) < 100
