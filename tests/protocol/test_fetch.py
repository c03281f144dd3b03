from struct import pack

import pytest

from protocol.fetch import INVALID_FETCH_SESSION_EPOCH, NO_SESSION, FetchSession, empty_answer, fetch_session
from protocol.headers import fetch_limits_offset, has_fetch_limits
from protocol.table import SPECS, ApiSpec
from tests.protocol.encode import encode_frame

FETCH = [spec for spec in SPECS.values() if spec.name == "Fetch"]


@pytest.mark.parametrize("spec", FETCH, ids=repr)
@pytest.mark.parametrize(
    ("session", "error_code"),
    [(NO_SESSION, 0), (FetchSession(0, 0), 0), (FetchSession(9, 4), INVALID_FETCH_SESSION_EPOCH)],
)
def test_empty_fetch_response_carries_session_and_error(spec: ApiSpec, session: FetchSession, error_code: int) -> None:
    values = {"throttle_time_ms": 300, "error_code": error_code, "session_id": 0, "responses": []}
    assert empty_answer(spec, 7, 300, session) == encode_frame(spec, values, correlation_id=7)


@pytest.mark.parametrize("spec", [spec for spec in FETCH if has_fetch_limits(spec)], ids=repr)
def test_fetch_session_is_read_behind_the_limits(spec: ApiSpec) -> None:
    start = b"" if spec.api_version >= 15 else pack(">i", -1)
    body = start + pack(">iiib", 500, 1, 10**6, 0) + (pack(">ii", 77, 5) if spec.api_version >= 7 else b"")
    limits = fetch_limits_offset(spec, body, 0, len(body) + 20)
    assert fetch_session(spec, body, limits) == ((77, 5) if spec.api_version >= 7 else NO_SESSION)


def test_fetch_cut_before_its_session_has_no_session() -> None:
    assert fetch_session(FETCH[11], bytes(20), 8) == NO_SESSION
