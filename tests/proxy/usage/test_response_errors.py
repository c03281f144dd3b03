"""Which errors in responses are counted, under which name."""

import kafka.errors
import pytest

from protocol.error_codes import ERROR_NAMES, coordinator_errors
from protocol.errors import ProtocolError
from protocol.overlay import API_VERSIONS, CREATE_TOPICS, FIND_COORDINATOR
from protocol.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from protocol.table import SPECS, key_version
from proxy.usage.response_errors import UNNAMED, ResponseErrors
from tests.protocol.encode import encode_frame, encode_request
from tests.proxy.playbook import (
    Play,
    authenticate,
    authenticate_answer,
    fetch,
    fetch_answer,
    handshake,
    handshake_answer,
    list_offsets,
    request,
)
from tests.proxy.session.mutating import BURST, CREATE, answer, create, play_with

OTHER_NAMES = {-1, 0, 6, 10, 17, 39}
"""Codes that have older names in kafka-python."""
COORDINATOR_VERSIONS = [spec for spec in SPECS.values() if spec.api_key == FIND_COORDINATOR]


def counted(play: Play) -> dict[tuple[int, int], int]:
    return dict(play.worker.errors.counts)


def test_names_are_those_of_kafka() -> None:
    others = {error.errno: error.message for error in map(kafka.errors.for_code, ERROR_NAMES)}
    shared = {code for code, name in others.items() if name != "UNKNOWN"} - OTHER_NAMES
    assert len(shared) > 100
    assert {code: ERROR_NAMES[code] for code in shared} == {code: others[code] for code in shared}


def test_no_error_is_none_and_what_has_no_name_makes_no_series() -> None:
    errors = ResponseErrors()
    for code in (0, 3, 3, 30_000, -30_000):
        errors.count(19, code)
    assert errors.counts == {(19, 3): 2, (19, UNNAMED): 2}


@pytest.mark.parametrize("spec", COORDINATOR_VERSIONS, ids=str)
def test_coordinators_of_every_version(spec: object) -> None:
    assert isinstance(spec, type(COORDINATOR_VERSIONS[0]))
    entry = {"node_id": 1, "host": "h", "port": 9, "error_code": 15, "key": "g", "error_message": "no"}
    fine = {**entry, "error_code": 0, "key": "f"}
    values = {"coordinators": [entry, fine]} if spec.api_version >= 4 else entry
    frame = encode_frame(spec, values)
    assert list(coordinator_errors(spec, frame)) == ([15, 0] if spec.api_version >= 4 else [15])
    with pytest.raises((ProtocolError, IndexError)):
        list(coordinator_errors(spec, frame[:9]))


def test_find_coordinator_errors_are_counted_per_key() -> None:
    spec = SPECS[key_version(FIND_COORDINATOR, 4)]
    play = Play()
    play.from_client(encode_request(spec, {"coordinator_keys": ["g", "h"]}, 1))
    entries = [{"key": key, "host": "", "node_id": -1, "port": -1, "error_code": 15} for key in "gh"]
    play.from_broker(encode_frame(spec, {"coordinators": entries}, 1))
    assert counted(play) == {(FIND_COORDINATOR, 15): 2}


def test_failed_handshake_and_authentication_errors_are_counted() -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "NONE"))
    play.from_broker(handshake_answer(1, 33))
    assert counted(play) == {(SASL_HANDSHAKE, 33): 1}
    play = Play(authenticated=False)
    play.from_client(handshake(1, "PLAIN"))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, b"\0alice\0wrong"))
    play.from_broker(authenticate_answer(2, error_code=58))
    assert counted(play) == {(SASL_AUTHENTICATE, 58): 1}


def test_unsupported_api_versions_requests_are_counted_as_error_35() -> None:
    play = Play()
    play.from_client(request(API_VERSIONS, 0, 1))
    play.from_broker(encode_frame(SPECS[key_version(API_VERSIONS, 0)], {"error_code": 35}, 1))
    play.from_client(request(API_VERSIONS, 99, 2))
    assert counted(play) == {(API_VERSIONS, 35): 2}


def test_topics_refused_by_broker_and_by_quota_are_counted() -> None:
    play = play_with()
    play.from_client(create(1, ("a", BURST + 8), ("b", 1)))
    assert counted(play) == {}  # not before it is told
    play.from_broker(answer(CREATE, 1, ("a", 36)))
    assert counted(play) == {(CREATE_TOPICS, 36): 1, (CREATE_TOPICS, 89): 1}


def test_topics_of_wholly_refused_requests_are_counted() -> None:
    play = play_with()
    play.from_client(create(1, ("a", BURST + 8)))
    play.from_client(create(2, ("b", 1), ("c", 1)))
    play.from_broker(answer(CREATE, 1, ("a", 0)))
    assert counted(play) == {(CREATE_TOPICS, 89): 2}


def test_answers_that_are_not_parsed_count_no_errors() -> None:
    play = Play()
    play.from_client(list_offsets(1) + fetch(2))
    play.from_broker(fetch_answer(1, 10))
    assert counted(play) == {}
