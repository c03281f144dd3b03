"""Generated responses: encoded by other people's codecs, changed by ours, decoded by theirs again."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.locator import locate, response_body_offset, rewrite
from protocol.overlay import API_VERSIONS
from protocol.table import ABSENT, ApiSpec
from tests.harness.examples import examples
from tests.protocol.encode import encode_frame
from tests.protocol.messages import responses
from tests.protocol.oracles import KafkaPython, Kio, Members, Oracle, known_to

ADDRESSES = {0: (b"proxy-0.example", 9000), 1: (b"p", 1), 2: ("ü".encode() * 100, 65535), 3: (b"x" * 127, 0)}

ORACLES = [pytest.param(KafkaPython(), id="kafka-python"), pytest.param(Kio(), id="kio")]


@pytest.mark.long
@pytest.mark.parametrize("oracle", ORACLES)
@examples(2)
@given(data=st.data())
def test_throttle_time_changed_by_us_is_decoded_by_other_codecs(oracle: Oracle, data: st.DataObject) -> None:
    specs = known_to(oracle, lambda spec: spec.throttle_offset != ABSENT)
    check(oracle, data.draw(st.sampled_from(specs)), data)


@pytest.mark.long
@pytest.mark.parametrize("oracle", ORACLES)
@examples(2)
@given(data=st.data())
def test_addresses_changed_by_us_are_decoded_by_other_codecs(oracle: Oracle, data: st.DataObject) -> None:
    check(oracle, data.draw(st.sampled_from(known_to(oracle, lambda spec: spec.endpoints))), data)


def check(oracle: Oracle, spec: ApiSpec, data: st.DataObject) -> None:
    """Change what the oracle encoded; what it reads then is what it read before, but for what was to be changed."""
    values = data.draw(responses(spec))
    if spec.api_key == API_VERSIONS:
        values["error_code"] = 0  # with 35 the layout is another, and kafka-python reads all others like 35
    throttle_ms = data.draw(st.none() | st.integers(0, 2**31 - 1))
    ours = encode_frame(spec, values)
    body = response_body_offset(spec, ours, 0)
    members, encoded = oracle.read(spec, ours[body:])
    frame = framed(ours[4:body] + encoded)

    changed = rewrite(spec, frame, throttle_ms, ADDRESSES)

    assert changed[:4] == framed(changed[4:])[:4]
    assert changed[4:body] == frame[4:body]
    after, _ = oracle.read(spec, changed[body:])
    expected = expect(spec, members, throttle_ms)
    assert after == expected
    assert [endpoint.host.decode() for endpoint in locate(spec, changed).endpoints] == [
        broker["host"] for broker in brokers(spec, expected)
    ]


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def expect(spec: ApiSpec, members: Members, throttle_ms: int | None) -> Members:
    """Change the members as the bytes should be changed."""
    expected = deepcopy(members)
    if throttle_ms is not None and spec.throttle_offset != ABSENT:
        expected["throttle_time_ms"] = throttle_ms
    for broker in brokers(spec, expected):
        node_id = broker["broker_id"] if "broker_id" in broker else broker["node_id"]
        if broker["host"]:
            unknown = (b"node-id-%d-is-not-known-to-sluice.invalid" % node_id, 0)
            host, broker["port"] = ADDRESSES.get(node_id, unknown)
            broker["host"] = host.decode()
    return expected


def brokers(spec: ApiSpec, members: Members) -> list[Members]:
    """Return the structs in which the members name brokers."""
    if spec.endpoint_path is None:
        return []
    return list(members[spec.endpoint_path.split(" ")[-1]]) if spec.endpoint_path else [members]
