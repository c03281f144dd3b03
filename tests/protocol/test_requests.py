from typing import Any

import pytest

from protocol.headers import client_id, request_body_offset
from protocol.layout import parse_layout
from protocol.requests import (
    WHICH_BROKERS,
    WHICH_TOKENS,
    WHICH_VERSIONS,
    Request,
    are_you,
    sasl_authenticate,
    sasl_handshake,
)
from protocol.table import SPECS, key_version
from tests.protocol.encode import encode_fields

ASKED: list[tuple[Request, dict[str, Any]]] = [
    (WHICH_VERSIONS, {}),
    (WHICH_BROKERS, {"topics": []}),
    (WHICH_TOKENS, {"owners": None}),
    (sasl_handshake("SCRAM-SHA-256"), {"mechanism": "SCRAM-SHA-256"}),
    (sasl_authenticate(b"\0alice\0secret"), {"auth_bytes": b"\0alice\0secret"}),
    (sasl_authenticate(b""), {"auth_bytes": b""}),
]


@pytest.mark.parametrize(("asked", "values"), ASKED, ids=[str(asked.spec) for asked, _ in ASKED])
def test_requests_are_what_their_layouts_say(asked: Request, values: dict[str, Any]) -> None:
    spec = asked.spec
    assert (spec.request_header_version, spec.response_header_version, spec.flexible) == (1, 0, False)
    frame = asked.frame("sluice", 7)
    assert client_id(spec, frame, 0) == "sluice"
    body = request_body_offset(spec, frame, 0, len(frame))
    assert frame[body:] == encode_fields(parse_layout(spec.request_layout).fields, values, flexible=False)


def test_metadata_asks_for_brokers_alone() -> None:
    assert WHICH_BROKERS.frame("sluice", 7).hex() == "0000001400030002000000070006736c7569636500000000"
    assert WHICH_BROKERS.spec is SPECS[key_version(3, 2)]


def test_api_versions_5_says_which_cluster_and_node_are_meant() -> None:
    """As ApiVersionsRequest.json of Kafka 4.4.0 lays it out (KIP-1242)."""
    expected = "0000002700120005000000070006736c75696365000" + "7736c75696365" + "0230" + "03696400000005" + "00"
    assert are_you("id", 5).frame("sluice", 7).hex()[8:] == expected[8:]


def test_request_size_counts_bytes_of_the_client_id() -> None:
    assert WHICH_BROKERS.frame("żółw", -1)[:4] == (14 + len("żółw".encode())).to_bytes(4, "big")
