import pytest

from protocol.cluster_ids import cluster_id_at, cluster_id_behind
from protocol.locator import locate
from protocol.overlay import METADATA
from protocol.table import SPECS, ApiSpec
from tests.protocol.encode import encode_frame

VERSIONS = [spec for spec in SPECS.values() if spec.api_key == METADATA]
WITH_ID = [spec for spec in VERSIONS if spec.api_version >= 2]
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


def metadata(spec: ApiSpec, rack: str | None = None, cluster_id: str | None = CLUSTER_ID, brokers: int = 2) -> bytes:
    named = [{"node_id": node_id, "host": "b", "port": 9092, "rack": rack} for node_id in range(brokers)]
    return encode_frame(spec, {"brokers": named, "cluster_id": cluster_id, "controller_id": 1})


@pytest.mark.parametrize("rack", [None, "", "eu-west-1a"])
@pytest.mark.parametrize("spec", VERSIONS, ids=str)
def test_cluster_id_is_read_in_every_metadata_version(spec: ApiSpec, rack: str | None) -> None:
    frame = metadata(spec, rack)
    expected = CLUSTER_ID if spec in WITH_ID else ""
    assert cluster_id_behind(spec, frame, locate(spec, frame).endpoints) == expected
    assert cluster_id_behind(spec, metadata(spec, rack, None), locate(spec, frame).endpoints) == ""


@pytest.mark.parametrize("spec", WITH_ID, ids=str)
def test_incomplete_cluster_id_reads_as_empty(spec: ApiSpec) -> None:
    frame = metadata(spec)
    brokers = locate(spec, frame).endpoints
    begin = frame.index(CLUSTER_ID.encode())
    for end in range(brokers[-1].port_offset, begin + len(CLUSTER_ID)):
        assert cluster_id_behind(spec, frame[:end], brokers) == ""
        assert cluster_id_at(spec, frame[:end], begin - (1 if spec.flexible else 2)) == ""
    assert cluster_id_at(spec, frame, begin - (1 if spec.flexible else 2)) == CLUSTER_ID
    assert cluster_id_behind(spec, metadata(spec, brokers=0), []) == ""


@pytest.mark.parametrize("wrong", ["a\nb", "ż", "a" * 256])
@pytest.mark.parametrize("spec", WITH_ID, ids=str)
def test_invalid_cluster_id_reads_as_empty(spec: ApiSpec, wrong: str) -> None:
    frame = metadata(spec, cluster_id=wrong)
    assert cluster_id_behind(spec, frame, locate(spec, frame).endpoints) == ""


@pytest.mark.parametrize("spec", WITH_ID, ids=str)
def test_arbitrary_bytes_read_as_cluster_id_or_empty(spec: ApiSpec) -> None:
    for junk in (b"\xff" * 12, b"\x80" * 12, b"\0" * 12, b"\x7f" * 12):
        assert isinstance(cluster_id_at(spec, junk, 0), str)
        frame = metadata(spec)
        brokers = locate(spec, frame).endpoints
        assert isinstance(cluster_id_behind(spec, frame[: brokers[-1].port_offset + 4] + junk, brokers), str)
