from protocol.headers import client_id, request_body_offset
from protocol.requests import metadata_request, metadata_spec
from protocol.table import SPECS, key_version


def test_metadata_asks_for_brokers_alone() -> None:
    frame = metadata_request("sluice", 7)
    assert frame.hex() == "0000001400030001000000070006736c7569636500000000"
    assert metadata_spec() is SPECS[key_version(3, 1)]
    assert client_id(metadata_spec(), frame, 0) == "sluice"
    assert request_body_offset(metadata_spec(), frame, 0, len(frame)) == len(frame) - 4


def test_sizes_count_bytes() -> None:
    assert metadata_request("żółw", -1)[:4] == (14 + len("żółw".encode())).to_bytes(4, "big")
