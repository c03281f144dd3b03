"""DescribeQuorum from version 2 on: the ids of controllers stay, and their addresses do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.overlay import DESCRIBE_QUORUM
from protocol.quorum import names_controllers, without_listeners
from protocol.table import SPECS, key_version
from tests.harness.examples import examples
from tests.protocol.encode import encode_frame
from tests.protocol.messages import responses

SPEC = SPECS[key_version(DESCRIBE_QUORUM, 2)]


@examples(2)
@given(data=st.data())
def test_any_answer_keeps_all_but_listeners(data: st.DataObject) -> None:
    values = data.draw(responses(SPEC))
    nodes = [{**node, "listeners": []} for node in values["nodes"]]
    assert without_listeners(SPEC, encode_frame(SPEC, values)) == encode_frame(SPEC, {**values, "nodes": nodes})


def test_cut_describe_quorum_response_is_refused() -> None:
    listener = {"name": "CONTROLLER", "host": "kraft", "port": 9093}
    topic = {"topic_name": "__cluster_metadata", "partitions": [{"current_voters": [{}], "observers": [{}]}]}
    frame = encode_frame(SPEC, {"topics": [topic], "nodes": [{"node_id": 1, "listeners": [listener]}]})
    assert b"kraft" not in without_listeners(SPEC, frame)
    for size in range(8, len(frame)):
        cut = (size - 4).to_bytes(4, "big") + frame[4:size]
        if size < len(frame) - 1:  # the last byte says that there are no tagged fields, and nobody reads it
            with pytest.raises(ProtocolError):
                without_listeners(SPEC, cut)


def test_only_describe_quorum_v2_names_controllers() -> None:
    versions = [spec for spec in SPECS.values() if spec.api_key == DESCRIBE_QUORUM]
    assert [names_controllers(spec) for spec in versions] == [False, False, True]
    assert all(spec.advertised for spec in versions)
