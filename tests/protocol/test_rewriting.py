"""A response changed in slices becomes what it becomes at once, and of one that is not all there more is asked for."""

import pytest

from protocol.compile import SLICE_BYTES, walk_source
from protocol.errors import ProtocolError
from protocol.locator import Endpoint, locate, splice
from protocol.overlay import ADDRESSES_FIRST
from protocol.rewriting import MOST_LOOKED_UP, Rewriting
from protocol.table import SPECS, ApiSpec
from tests.protocol.encode import encode_frame

WITH_ADDRESSES = [spec for spec in SPECS.values() if spec.endpoints]
ADDRESSES = {1: (b"proxy.example", 9101), 2: (b"p", 1)}


def frame_of(spec: ApiSpec, count: int) -> bytes:
    hosts = ("", "kafka-1.internal", "k", "of-whom-nobody-knows.internal")
    brokers = [
        {"node_id": number % 4, "broker_id": number % 4, "host": hosts[number % 4], "port": 9092}
        for number in range(1, count + 1)
    ]
    path = spec.endpoint_path or ""
    values = {path.split(" ")[-1]: brokers} if path else brokers[0]
    return encode_frame(spec, values | {"throttle_time_ms": 5})


def rewriting_of(spec: ApiSpec, frame: bytes, size: int, throttle_ms: int | None = None) -> Rewriting:
    return Rewriting(spec, frame, size, throttle_ms, lambda endpoint: ADDRESSES.get(endpoint.node_id))


@pytest.mark.long
@pytest.mark.parametrize("spec", WITH_ADDRESSES, ids=repr)
@pytest.mark.parametrize("count", [1, 3000])
@pytest.mark.parametrize("throttle_ms", [None, 3, 700])
def test_response_rewritten_in_slices_equals_one_rewrite(spec: ApiSpec, count: int, throttle_ms: int | None) -> None:
    frame = frame_of(spec, count)
    rewriting = rewriting_of(spec, frame, len(frame) - 4, throttle_ms)
    slices = 1
    while not rewriting.advance():
        slices += 1
    assert slices == pytest.approx(1 + len(frame) / SLICE_BYTES, abs=1)
    told_ms = None if throttle_ms is None else max(throttle_ms, 5)
    assert not rewriting.needs_more
    assert rewriting.written() + frame[rewriting.end :] == splice(frame, locate(spec, frame), told_ms, ADDRESSES)


@pytest.mark.parametrize("spec", [spec for spec in WITH_ADDRESSES if spec.endpoint_path], ids=repr)
def test_rewriting_looks_up_few_brokers_in_each_slice(spec: ApiSpec) -> None:
    """To look one up that is new binds ports: thousands of them, as a hostile broker may name, are no one slice."""
    brokers = [{"node_id": n, "broker_id": n, "host": f"kafka-{n}", "port": 9092} for n in range(1, 333)]
    frame = encode_frame(spec, {(spec.endpoint_path or "").split(" ")[-1]: brokers})
    told = {number: (b"proxy.example", number) for number in range(1, 333)}
    asked: list[int] = []

    def look_up(endpoint: Endpoint) -> tuple[bytes, int]:
        asked.append(endpoint.node_id)
        return told[endpoint.node_id]

    rewriting = Rewriting(spec, frame, len(frame) - 4, None, look_up)
    before, is_over = 0, False
    while not is_over:
        is_over = rewriting.advance()
        assert len(asked) - before <= MOST_LOOKED_UP
        before = len(asked)
    assert asked == list(told)
    assert rewriting.written() + frame[rewriting.end :] == splice(frame, locate(spec, frame), None, told)


@pytest.mark.parametrize("spec", WITH_ADDRESSES, ids=repr)
def test_rewriting_of_incomplete_response_asks_for_more(spec: ApiSpec) -> None:
    frame = frame_of(spec, 3)
    size = len(frame) - 4
    whole = splice(frame, locate(spec, frame), None, ADDRESSES)
    for length in range(8, len(frame)):
        rewriting = rewriting_of(spec, frame[:length], size)
        assert rewriting.advance()
        assert rewriting.needs_more or rewriting.written() + frame[rewriting.end :] == whole


@pytest.mark.parametrize("spec", WITH_ADDRESSES, ids=repr)
def test_rewriting_of_response_that_ends_early_is_refused(spec: ApiSpec) -> None:
    frame = frame_of(spec, 1)
    for length in range(8, locate(spec, frame).endpoints[0].port_offset + 4):
        with pytest.raises(ProtocolError):
            rewriting_of(spec, frame[:length], length - 4).advance()


@pytest.mark.parametrize("spec", WITH_ADDRESSES, ids=repr)
def test_layouts_keep_node_id_host_and_port_together(spec: ApiSpec) -> None:
    """Node id, host and port stand together, a throttle before them; of Metadata nothing behind the brokers is read."""
    layout = spec.response_layout
    assert ("node_id:i32 host:string port:i32" in layout) or ("broker_id:i32 host:string port:i32" in layout)
    assert layout.find("throttle_time_ms") < layout.find("host:string")
    if spec.api_key in ADDRESSES_FIRST:
        assert walk_source(layout, spec.endpoint_path).count("for _ in range") == 1
