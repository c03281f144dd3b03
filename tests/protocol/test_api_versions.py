import pytest

from protocol.api_versions import advertised_limits, intersect, unsupported_version_answer
from protocol.errors import ProtocolError
from protocol.table import SPECS, ApiSpec, key_version
from tests.protocol.encode import encode_frame

V0, V3 = SPECS[key_version(18, 0)], SPECS[key_version(18, 3)]
PRODUCE, FETCH, METADATA = 0, 1, 3


def api(key: int, lowest: int, highest: int) -> dict[str, object]:
    return {"api_key": key, "min_version": lowest, "max_version": highest}


@pytest.mark.parametrize("spec", [V0, V3], ids=repr)
def test_offered_api_versions_are_narrowed_dropped_and_recounted(spec: ApiSpec) -> None:
    offered = [api(PRODUCE, 0, 13), api(FETCH, 4, 18), api(METADATA, 9, 13), api(10001, 0, 0)]
    limits = {PRODUCE: (3, 11), FETCH: (0, 15), METADATA: (0, 8)}
    kept = [api(PRODUCE, 0, 11), api(FETCH, 4, 15)]
    frame = encode_frame(spec, {"api_keys": offered, "throttle_time_ms": 5})
    assert intersect(frame, spec, limits) == encode_frame(spec, {"api_keys": kept, "throttle_time_ms": 5})


def test_unknown_tags_of_api_versions_response_are_kept() -> None:
    rest = {"supported_features": [{"name": "metadata.version", "max_version": 25}], "_unknown_tags": {9: b"?"}}
    kept = api(METADATA, 0, 13) | {"_unknown_tags": {7: b"abc"}}
    frame = encode_frame(V3, {"api_keys": [kept, api(10001, 0, 0)], **rest})
    assert intersect(frame, V3, advertised_limits()) == encode_frame(V3, {"api_keys": [kept], **rest})


def test_count_shrinks_to_one_byte() -> None:
    frame = encode_frame(V3, {"api_keys": [api(METADATA, 0, 1), *[api(10000 + key, 0, 0) for key in range(200)]]})
    assert intersect(frame, V3, {METADATA: (0, 1)}) == encode_frame(V3, {"api_keys": [api(METADATA, 0, 1)]})


def test_overlong_count_is_kept_when_unchanged() -> None:
    frame = bytes.fromhex("000000140000000100008200000300000001000000000000")
    assert intersect(frame, V3, {METADATA: (0, 13)}) == frame


def test_error_35_has_the_layout_of_v0() -> None:
    answer = unsupported_version_answer(77, 5)
    assert answer.hex() == "000000100000004d002300000001001200000005"
    assert intersect(answer, V3, {18: (0, 4)}) == unsupported_version_answer(77, 4)


@pytest.mark.parametrize("spec", [V0, V3], ids=repr)
def test_cut_anywhere_in_the_list_is_refused(spec: ApiSpec) -> None:
    frame = encode_frame(spec, {"api_keys": [api(METADATA, 0, 1)]})
    end = len(frame) - (0 if spec is V0 else 5)
    for length in range(4, end):
        with pytest.raises(ProtocolError):
            intersect(frame[:length], spec, advertised_limits())


@pytest.mark.parametrize(("spec", "count"), [(V0, "ffffffff"), (V3, "00"), (V0, "7fffffff"), (V3, "ffffffff0f")])
def test_impossible_count_is_refused(spec: ApiSpec, count: str) -> None:
    with pytest.raises(ProtocolError):
        intersect(bytes(8) + b"\0\0" + bytes.fromhex(count) + bytes(12), spec, {0: (0, 0)})


def test_advertised_limits_follow_the_configured_maximum_versions() -> None:
    limits = advertised_limits()
    assert limits[PRODUCE] == (0, 13)
    assert limits[FETCH] == (0, 18)
    assert limits[18] == (0, 5)
    assert advertised_limits(fetch_max_version=12)[FETCH] == (0, 12)
    assert (limits[0], advertised_limits(produce_max_version=12)[0]) == ((0, 13), (0, 12))
    assert limits[78] == (1, 2)  # v0 was a preview
    assert not limits.keys() & {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)}


def test_advertised_version_ranges_have_no_gap() -> None:
    for key, (lowest, highest) in advertised_limits().items():
        assert all(SPECS[key_version(key, version)].advertised for version in range(lowest, highest + 1))
