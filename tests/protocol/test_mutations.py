"""Requests that change topics, and their answers: what is read, cut and added, by our codec and by kafka-python's."""

from contextlib import suppress
from struct import unpack_from
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import topics as theirs

from protocol.errors import ProtocolError
from protocol.fields import NO_ID
from protocol.headers import request_body_offset
from protocol.locator import response_body_offset
from protocol.mutation_answers import MESSAGE, in_order, read_outcomes, refusal, refused_topic, with_refused
from protocol.mutations import MOST_ENTRIES, MOST_TOPICS, Entries, TopicEntry, is_strict, read_entries, without
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.table import SPECS, ApiSpec, key_version
from tests.harness.examples import examples
from tests.protocol.encode import encode_frame, encode_request
from tests.protocol.messages import requests, responses

KEYS = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
ALL = [spec for spec in SPECS.values() if spec.api_key in KEYS]
STRICT = [spec for spec in ALL if is_strict(spec)]
OF_KEY = {
    CREATE_TOPICS: (theirs.CreateTopicsRequest, theirs.CreateTopicsResponse),
    DELETE_TOPICS: (theirs.DeleteTopicsRequest, theirs.DeleteTopicsResponse),
    CREATE_PARTITIONS: (theirs.CreatePartitionsRequest, theirs.CreatePartitionsResponse),
}


def spec_of(key: int, version: int) -> ApiSpec:
    return SPECS[key_version(key, version)]


def read(spec: ApiSpec, frame: bytes) -> Entries:
    return read_entries(spec, frame, request_body_offset(spec, frame, 0, len(frame)))


def named(spec: ApiSpec) -> str:
    """What the array of topics is called in a request."""
    return "topic_names" if spec.api_key == DELETE_TOPICS and spec.api_version < 6 else "topics"


def decoded(spec: ApiSpec, body: bytes, *, answer: bool) -> dict[str, Any]:
    message: dict[str, Any] = OF_KEY[spec.api_key][answer].decode(body, version=spec.api_version).to_dict(json=False)
    return message


def listed(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The topics of an answer, whatever they are called."""
    found: list[dict[str, Any]] = next(answer[name] for name in ("topics", "responses", "results") if name in answer)
    return found


def test_refusable_versions_of_topic_requests_are_the_throttled_ones() -> None:
    assert {key: min(spec.api_version for spec in STRICT if spec.api_key == key) for key in KEYS} == {
        CREATE_TOPICS: 6,
        DELETE_TOPICS: 5,
        CREATE_PARTITIONS: 3,
    }
    assert all(spec.flexible and spec.throttle_offset == 0 for spec in STRICT)


@pytest.mark.long
@examples(2)
@given(data=st.data())
def test_any_request_is_read_and_any_part_of_it_is_cut_out(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(ALL))
    values = data.draw(requests(spec))
    frame = encode_request(spec, values)
    entries = read(spec, frame)
    topics = values[named(spec)]
    assert len(entries.topics) == len(topics)
    assert entries.validate_only == values.get("validate_only", False)
    for entry, topic in zip(entries.topics, topics, strict=True):
        name = topic if isinstance(topic, str) else topic["name"]
        assert entry.topic[0] == (name or "").encode()
        assert entry.has_name == (name is not None)
        if spec.api_key == CREATE_TOPICS:
            assert entry.partitions == (len(topic["assignments"]) or topic["num_partitions"])
        elif spec.api_key == CREATE_PARTITIONS:
            assert entry.partitions == topic["count"]
    cut = data.draw(st.lists(st.booleans(), min_size=len(topics), max_size=len(topics)))
    left = without(spec, frame, entries, [entry for entry, gone in zip(entries.topics, cut, strict=True) if gone])
    kept = [topic for topic, gone in zip(topics, cut, strict=True) if not gone]
    assert left == encode_request(spec, {**values, named(spec): kept})
    body = request_body_offset(spec, left, 0, len(left))
    assert len(decoded(spec, left[body:], answer=False)[named(spec)]) == len(kept)


def entry_of(name: bytes, topic_id: bytes = NO_ID, *, has_name: bool = True) -> TopicEntry:
    return TopicEntry(0, 0, (name, topic_id), has_name, 0)


@examples(2)
@given(data=st.data())
def test_refused_topics_are_added_to_any_answer(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(STRICT))
    values = data.draw(responses(spec))
    own_ms, broker_ms = data.draw(st.integers(0, 2**31 - 1)), values["throttle_time_ms"]
    names = data.draw(st.lists(st.text("abc.-", max_size=200), max_size=3))
    refused = [entry_of(name.encode()) for name in names]
    if spec.api_key == DELETE_TOPICS and spec.api_version >= 6:
        refused.append(entry_of(b"", b"i" * 16, has_name=False))
    before = encode_frame(spec, values)
    ahead = data.draw(st.binary(max_size=20))
    begun, taken = with_refused(spec, ahead + before, len(ahead), len(before) - 4, own_ms, refused)
    answer = begun + before[taken:]
    assert unpack_from(">i", answer)[0] == len(answer) - 4
    was, now = (decoded(spec, each[response_body_offset(spec, each, 0) :], answer=True) for each in (before, answer))
    assert now["throttle_time_ms"] == max(own_ms, broker_ms)
    assert listed(now)[len(refused) :] == listed(was)
    added = listed(now)[: len(refused)]
    assert [(each["error_code"], each.get("error_message")) for each in added] == [(89, MESSAGE.decode())] * len(added)
    assert [each["name"] or "" for each in added] == [each.topic[0].decode() for each in refused]
    assert len(read_outcomes(spec, answer)) == len(listed(now))


@examples(2)
@given(data=st.data())
def test_refused_topics_stand_in_any_answer_where_they_were_asked_for(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(STRICT))
    asked = data.draw(st.lists(st.text("abc", min_size=1, max_size=9), unique=True, max_size=8))
    refused = data.draw(st.lists(st.sampled_from(asked), unique=True)) if asked else []
    values = data.draw(responses(spec))
    answered = [name for name in asked if name not in refused]
    listed(values)[:] = [{**each, "name": name} for name, each in zip(answered, listed(values), strict=False)]
    ordered = [each["name"] for each in listed(values)]
    listed(values).sort(key=lambda each: str(each["name"])[::-1])
    before = encode_frame(spec, values)
    entries = [entry_of(name.encode()) for name in asked]
    outcomes = read_outcomes(spec, before)
    told = [(entry, refused_topic(spec, entry)) for entry in (entry_of(name.encode()) for name in refused)]
    after = in_order(spec, before, 0, outcomes, told, entries)
    assert unpack_from(">i", after)[0] == len(after) - 4
    was, now = (decoded(spec, each[response_body_offset(spec, each, 0) :], answer=True) for each in (before, after))
    names = [each["name"] for each in listed(now)]
    assert names == [name for name in asked if name in refused or name in ordered]
    assert all(each["error_code"] == 89 for each in listed(now) if each["name"] in refused)
    kept = [each for each in listed(now) if each["name"] not in refused]
    assert sorted(kept, key=str) == sorted(listed(was), key=str)
    assert now["throttle_time_ms"] == max(0, was["throttle_time_ms"])


@pytest.mark.parametrize("spec", STRICT, ids=str)
def test_request_refused_whole_is_answered_by_the_proxy(spec: ApiSpec) -> None:
    answer = refusal(spec, 7, 1500, [entry_of(b"a"), entry_of(b"b")])
    assert unpack_from(">ii", answer) == (len(answer) - 4, 7)
    said = decoded(spec, answer[response_body_offset(spec, answer, 0) :], answer=True)
    assert said["throttle_time_ms"] == 1500
    assert [(each["name"], each["error_code"]) for each in listed(said)] == [("a", 89), ("b", 89)]
    if spec.api_key == CREATE_TOPICS:
        assert [(each["num_partitions"], each["configs"]) for each in listed(said)] == [(-1, [])] * 2


@examples(2)
@given(data=st.data())
def test_topic_outcomes_are_read_from_any_response(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(ALL))
    values = data.draw(responses(spec))
    outcomes = read_outcomes(spec, encode_frame(spec, values))
    topics = next(values[name] for name in ("topics", "responses", "results") if name in values)
    assert [outcome.topic[0] for outcome in outcomes] == [(each["name"] or "").encode() for each in topics]
    assert [outcome.error_code for outcome in outcomes] == [each["error_code"] for each in topics]
    if spec.api_key == CREATE_TOPICS and spec.api_version >= 5:
        assert [outcome.partitions for outcome in outcomes] == [each["num_partitions"] for each in topics]


@pytest.mark.long
@examples(2)
@given(data=st.data())
def test_cut_topic_request_is_refused(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(ALL))
    frame = encode_request(spec, data.draw(requests(spec)))
    body = request_body_offset(spec, frame, 0, len(frame))
    # At its end are at most validate_only and the number of tagged fields, which nobody reads.
    cut = data.draw(st.integers(body, len(frame) - 1 - spec.flexible))
    with pytest.raises(ProtocolError):
        read_entries(spec, frame[:cut], body)


@examples(2)
@given(data=st.data(), junk=st.binary(max_size=200))
def test_nonsense_raises_nothing_but_a_protocol_error(data: st.DataObject, junk: bytes) -> None:
    spec = data.draw(st.sampled_from(ALL))
    for attempt in (
        lambda: read_entries(spec, junk, 0),
        lambda: read_outcomes(spec, junk),
        lambda: with_refused(spec, junk, 0, max(len(junk) - 4, 0), 1, [entry_of(b"a")]),
    ):
        with suppress(ProtocolError):
            attempt()


def test_no_request_lists_more_than_can_be_read_at_once() -> None:
    spec = spec_of(DELETE_TOPICS, 5)
    frame = encode_request(spec, {"topic_names": ["t"] * (MOST_TOPICS + 1)})
    with pytest.raises(ProtocolError, match="more than 5000 topics"):
        read(spec, frame)
    spec = spec_of(CREATE_TOPICS, 7)
    assigned = [{"partition_index": number, "broker_ids": [1]} for number in range(MOST_ENTRIES)]
    frame = encode_request(spec, {"topics": [{"name": "t", "assignments": assigned}]})
    with pytest.raises(ProtocolError, match="more than 20000 topics"):
        read(spec, frame)
