import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.locator import locate
from protocol.plain import Plain
from protocol.table import SPECS, ApiSpec, key_version
from tests.protocol.encode import encode_frame
from tests.protocol.messages import Values, responses

PRODUCES = [spec for spec in SPECS.values() if spec.api_key == 0 and spec.endpoints]
PRODUCE = SPECS[key_version(0, 11)]
BROKER = {"node_id": 1, "host": "kafka-1", "port": 9092, "rack": None}


def partitions(name: str, *offsets: int) -> Values:
    return {"responses": [{"name": name, "partition_responses": [{"base_offset": offset} for offset in offsets]}]}


def size_of(frame: bytes) -> int:
    return len(frame) - 4


def names_no_broker(spec: ApiSpec, frame: bytes) -> bool:
    try:
        return not locate(spec, frame).endpoints
    except ProtocolError:
        return False


def taught(frame: bytes, spec: ApiSpec = PRODUCE) -> Plain:
    plain = Plain(spec)
    plain.learn(frame)
    return plain


def test_the_next_response_with_another_offset_is_recognised() -> None:
    first, second = (
        encode_frame(PRODUCE, partitions("orders", 7)),
        encode_frame(PRODUCE, partitions("orders", 1 << 40), 9),
    )
    plain = taught(first)
    assert plain.recognises(second, 0, size_of(second))
    assert plain.recognises(b"before" + second + b"behind", 6, size_of(second))


def test_a_topic_of_another_name_and_the_same_length_is_recognised() -> None:
    other = encode_frame(PRODUCE, partitions("orderz", 7))
    assert taught(encode_frame(PRODUCE, partitions("orders", 7))).recognises(other, 0, size_of(other))


def test_response_is_not_recognised_before_learning() -> None:
    frame = encode_frame(PRODUCE, partitions("orders", 7))
    assert not Plain(PRODUCE).recognises(frame, 0, size_of(frame))


def test_a_broker_in_a_response_of_the_same_size_is_not_overlooked() -> None:
    telling = encode_frame(PRODUCE, {**partitions("o", 7), "node_endpoints": [BROKER]})
    longer = "o" * (1 + len(telling) - len(encode_frame(PRODUCE, partitions("o", 7))))
    plain = taught(encode_frame(PRODUCE, partitions(longer, 7)))
    assert len(encode_frame(PRODUCE, partitions(longer, 7))) == len(telling)
    assert not plain.recognises(telling, 0, size_of(telling))


def test_learned_responses_are_bounded_in_number() -> None:
    plain = Plain(PRODUCE)
    frames = [encode_frame(PRODUCE, partitions("o" * length, 7)) for length in range(1, 400)]
    for frame in frames:
        plain.learn(frame)
    assert sum(plain.recognises(frame, 0, size_of(frame)) for frame in frames) == 256


def test_a_response_of_very_many_partitions_is_walked_through() -> None:
    frame = encode_frame(PRODUCE, partitions("orders", *range(100)))
    assert not taught(frame).recognises(frame, 0, size_of(frame))


@pytest.mark.long
@pytest.mark.parametrize("spec", PRODUCES, ids=repr)
@given(data=st.data())
def test_recognised_response_names_no_broker(spec: ApiSpec, data: st.DataObject) -> None:
    frame = encode_frame(spec, data.draw(responses(spec)))
    if not names_no_broker(spec, frame):
        return
    plain = taught(frame, spec)
    changed = bytearray(frame)
    for at in data.draw(st.lists(st.integers(4, len(frame) - 1), max_size=6)):
        changed[at] = data.draw(st.integers(0, 255))
    if plain.recognises(bytes(changed), 0, size_of(frame)):
        assert locate(spec, bytes(changed)) == locate(spec, frame)


@pytest.mark.parametrize("spec", PRODUCES, ids=repr)
def test_response_changed_in_one_byte_hides_no_broker(spec: ApiSpec) -> None:
    frame = encode_frame(spec, partitions("orders", 7, 8))
    plain = taught(frame, spec)
    recognised = 0
    for at in range(8, len(frame)):
        for value in range(256):
            changed = frame[:at] + bytes((value,)) + frame[at + 1 :]
            if plain.recognises(changed, 0, size_of(frame)):
                recognised += 1
                assert names_no_broker(spec, changed)
    assert recognised > 256
