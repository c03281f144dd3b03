"""One controller is told for all, in every version of the answers that name one; nothing else changes."""

import pytest

from protocol.compile import Endpoint
from protocol.controllers import is_candidate, name_controller
from protocol.errors import ProtocolError
from protocol.locator import locate
from protocol.overlay import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA
from protocol.rewriting import Rewriting
from protocol.table import SPECS, ApiSpec
from tests.protocol.encode import encode_frame

NAMING = [
    spec
    for spec in SPECS.values()
    if spec.api_key in (METADATA, DESCRIBE_CLUSTER) and "controller_id" in spec.response_layout
]
FENCING = [spec for spec in NAMING if "is_fenced" in spec.response_layout]
VALUES = {"cluster_id": "MkU3OEVBNTcwNTJENDM2Qk", "error_message": "none", "endpoint_type": 1}


def answer(spec: ApiSpec, controller_id: int, ids: tuple[int, ...] = (5, 3, 4), **values: object) -> bytes:
    brokers = [
        {"node_id": n, "broker_id": n, "host": f"kafka-{n}", "port": 9092, "rack": "r" * n, "is_fenced": n == 2}
        for n in ids
    ]
    return encode_frame(spec, VALUES | {"brokers": brokers, "controller_id": controller_id} | values)


def named(spec: ApiSpec, frame: bytes) -> bytes:
    """Return the answer with its addresses as they are, and one controller named."""
    ids: list[int] = []

    def told(broker: Endpoint) -> tuple[bytes, int]:
        if is_candidate(spec, frame, broker):
            ids.append(broker.node_id)
        return broker.host, broker.port

    rewriting = Rewriting(spec, frame, len(frame) - 4, None, told)
    while not rewriting.advance():
        pass
    end, written = rewriting.end, rewriting.written()
    found = (end, written) if not ids else name_controller(spec, frame, end, written, min(ids), is_whole=True)
    assert found is not None
    return found[1] + frame[found[0] :]


def test_every_version_that_names_a_controller_is_covered() -> None:
    assert {(spec.api_key, spec.api_version) for spec in NAMING} >= {(METADATA, v) for v in range(1, 14)}
    assert len([spec for spec in NAMING if spec.api_key == DESCRIBE_CLUSTER]) == 3


@pytest.mark.parametrize("spec", NAMING, ids=str)
def test_the_lowest_node_id_is_the_controller_and_nothing_else_changes(spec: ApiSpec) -> None:
    for cluster_id in ("", VALUES["cluster_id"], None if spec.api_key == METADATA else "x" * 300):
        frame = answer(spec, 4, cluster_id=cluster_id)
        assert named(spec, frame) == answer(spec, 3, cluster_id=cluster_id) != frame


@pytest.mark.parametrize("spec", NAMING, ids=str)
def test_response_without_controller_or_brokers_is_unchanged(spec: ApiSpec) -> None:
    for frame in (answer(spec, -1), answer(spec, 4, ())):
        assert named(spec, frame) == frame


@pytest.mark.parametrize("spec", FENCING, ids=str)
def test_a_fenced_broker_is_not_named(spec: ApiSpec) -> None:
    assert named(spec, answer(spec, 4, (2, 3, 4))) == answer(spec, 3, (2, 3, 4))


@pytest.mark.parametrize("spec", [spec for spec in NAMING if "endpoint_type" in spec.response_layout], ids=str)
def test_response_listing_controllers_is_unchanged(spec: ApiSpec) -> None:
    frame = answer(spec, 4, endpoint_type=2)
    assert named(spec, frame) == frame


@pytest.mark.parametrize("spec", [spec for spec in NAMING if spec.api_key == METADATA], ids=str)
def test_response_cut_before_its_controller_is_refused(spec: ApiSpec) -> None:
    frame = answer(spec, 4)
    rewriting = Rewriting(spec, frame, len(frame) - 4, None, lambda broker: (broker.host, broker.port))
    while not rewriting.advance():
        pass
    behind = rewriting.end
    for end in range(behind, len(frame)):
        try:
            found = name_controller(spec, frame[:end], behind, frame[:behind], 3, is_whole=True)
        except ProtocolError:
            continue
        assert found is not None
        assert found[1] + frame[found[0] : end] == answer(spec, 3)[:end]


def test_responses_without_a_controller_field_are_unchanged() -> None:
    for key in (METADATA << 16, 10 << 16):
        named = name_controller(SPECS[key], bytes(100), 50, b"written", 1, is_whole=True)
        assert named == (50, b"written")


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.api_key == FIND_COORDINATOR], ids=str)
def test_other_answers_with_brokers_are_left_as_they_are(spec: ApiSpec) -> None:
    coordinator = {
        "node_id": 5,
        "host": "kafka-5",
        "port": 9092,
        "key": "group",
        "error_code": 0,
        "error_message": None,
    }
    frame = encode_frame(spec, {**coordinator, "coordinators": [coordinator]})
    assert locate(spec, frame).endpoints
    assert named(spec, frame) == frame
