"""The proxy's own question about topics, by other people's codecs and by the layouts of the table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataRequest

from protocol.errors import ProtocolError
from protocol.fields import NO_ID
from protocol.headers import request_body_offset
from protocol.topic_partitions import read_partitions, which_partitions
from tests.harness.examples import examples
from tests.protocol.encode import encode_frame
from tests.protocol.messages import responses

BY_NAME = which_partitions([(b"a", NO_ID), (b"bb", NO_ID)], by_id=False)
BY_ID = which_partitions([(b"", b"i" * 16), (b"", b"j" * 16)], by_id=True)


@pytest.mark.parametrize("request_", [BY_NAME, BY_ID], ids=["by name", "by id"])
def test_metadata_request_for_partitions_creates_no_topic(request_: object) -> None:
    request = BY_NAME if request_ is BY_NAME else BY_ID
    frame = request.frame("sluice", 5)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = request_body_offset(request.spec, frame, 0, len(frame))
    asked = MetadataRequest.decode(frame[body:], version=request.version)
    assert asked.allow_auto_topic_creation is False
    assert [topic.name for topic in asked.topics] == (["a", "bb"] if request is BY_NAME else [None, None])
    if request is BY_ID:
        assert [topic.topic_id.bytes for topic in asked.topics] == [b"i" * 16, b"j" * 16]


@pytest.mark.long
@examples(2)
@given(data=st.data(), by_id=st.booleans())
def test_metadata_response_gives_partition_counts(data: st.DataObject, by_id: bool) -> None:
    request = BY_ID if by_id else BY_NAME
    values = data.draw(responses(request.spec))
    expected = {
        (b"", bytes(topic["topic_id"] or 16)) if by_id else ((topic["name"] or "").encode(), NO_ID): len(
            topic["partitions"]
        )
        for topic in values["topics"]
        if not topic["error_code"]
    }
    frame = encode_frame(request.spec, values)
    assert read_partitions(request, frame) == expected
    with pytest.raises(ProtocolError):
        read_partitions(request, frame[: data.draw(st.integers(0, len(frame) - 1 - by_id))])
