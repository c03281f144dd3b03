"""The table against what four other sources say of the protocol, and against the jars it is made from."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.generate.__main__ import TABLE
from protocol.generate.jars import RELEASES, cached_jar_directory
from protocol.generate.table import dump, merge, render
from protocol.layout import parse_layout
from protocol.overlay import BROKER_ADDRESSES, OBEYED_FROM
from protocol.quorum import names_controllers
from protocol.table import ABSENT, NAMES, SPECS, WALK, ApiSpec, key_version

OTHERS = json.loads((Path(__file__).parent / "data" / "protocol-table.json").read_text(encoding="utf-8"))["apis"]

NEWER_THAN_THE_OTHERS = {
    "ApiVersions v5",  # KIP-1242
    "TxnOffsetCommit v6",  # KIP-1319
    "DeleteGroups v3",
    "StreamsGroupHeartbeat v1",
    "StreamsGroupDescribe v1",
    "StreamsGroupTopologyDescriptionUpdate v0",
    "UnregisterController v0",
}
NULLABILITY_UNKNOWN_TO_3_9 = {"ShareGroupHeartbeat v0"}
"""The schemas of 3.9 do not say which structs are nullable; this preview is the only version that 4.x dropped and that
has one. It is never advertised, and its throttle_time_ms stands before it."""


def versions(runs: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    for run, value in runs.items():
        first, last = map(int, run.split("-"))
        for version in range(first, last + 1):
            yield version, value


def without_names(layout: str) -> str:
    return re.sub(r"\w+:", "", layout).strip()


OTHERS_VERSIONS = [
    pytest.param(api, version, id=f"{api['name']}-v{version}")
    for api in OTHERS
    for version, _ in versions(api["request_header"])
]


@pytest.mark.parametrize(("api", "version"), OTHERS_VERSIONS)
def test_table_agrees_with_other_codecs(api: dict[str, Any], version: int) -> None:
    spec = SPECS[key_version(api["key"], version)]
    expected: dict[str, Any] = {
        member: dict(versions(runs))[version] for member, runs in api.items() if isinstance(runs, dict)
    }
    assert spec.request_header_version == expected["request_header"]
    assert spec.response_header_version == expected["response_header"]
    assert spec.throttle_offset == {None: ABSENT, "walk": WALK}.get(expected["throttle"], expected["throttle"])
    assert without_names(spec.request_layout) == without_names(expected["request"])
    if repr(spec) not in NULLABILITY_UNKNOWN_TO_3_9:
        assert without_names(spec.response_layout) == without_names(expected["response"])


@pytest.mark.parametrize("api", [pytest.param(api, id=api["name"]) for api in OTHERS if api["scope"] != "inter-broker"])
def test_table_agrees_with_others_on_throttle_and_addresses(api: dict[str, Any]) -> None:
    assert OBEYED_FROM.get(api["key"]) == api["obeyed_from"]
    for version, struct in versions(api["endpoints"]):
        spec = SPECS[key_version(api["key"], version)]
        found = None if spec.endpoint_path is None else f"{spec.endpoint_path}[]" if spec.endpoint_path else "<root>"
        assert found == struct


@pytest.mark.parametrize("api", [pytest.param(api, id=api["name"]) for api in OTHERS])
def test_table_advertises_versions_that_brokers_advertise(api: dict[str, Any]) -> None:
    advertised = [spec.api_version for spec in SPECS.values() if spec.api_key == api["key"] and spec.advertised]
    if api["scope"] == "inter-broker":
        # Admin clients send it, too, to end hanging transactions (KIP-664).
        assert advertised == [] or api["name"] == "WriteTxnMarkers"
        return
    lowest, highest = api["kafka_4_2_range"]
    # Brokers offer it only with unstable.api.versions.enable.
    left_out = {6} if api["name"] == "InitProducerId" else set()
    assert set(range(lowest, highest + 1)) - left_out <= set(advertised)


def test_table_exceeds_other_codecs_by_known_versions_alone() -> None:
    theirs = {f"{NAMES[api['key']]} v{version}" for api in OTHERS for version, _ in versions(api["request_header"])}
    assert {repr(spec) for spec in SPECS.values()} - theirs == NEWER_THAN_THE_OTHERS


def test_spec_number_is_api_key_and_version() -> None:
    assert all(number == spec.number for number, spec in SPECS.items())
    assert SPECS[3 << 16 | 12].name == "Metadata"
    assert SPECS[key_version(7, 0)].request_header_version == 0  # ControlledShutdown v0, the only one


def test_throttle_time_is_obeyed_from_the_recorded_version() -> None:
    assert [SPECS[key_version(0, version)].obeyed for version in range(4, 8)] == [False, False, True, True]
    assert SPECS[key_version(60, 0)].obeyed_from is None  # DescribeCluster: ignored by Java clients before 4.4


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.api_key in BROKER_ADDRESSES], ids=repr)
def test_addresses_are_node_id_host_and_port_in_this_order(spec: ApiSpec) -> None:
    fields = parse_layout(spec.response_layout).fields
    if spec.endpoint_path is None:
        assert "host" not in spec.response_layout
        return
    if spec.endpoint_path:
        name = spec.endpoint_path.split(" ")[-1]
        (fields,) = [field.fields for field in fields if field.name == name]
    written = [(field.name, field.type) for field in fields]
    at = written.index(("host", "string"))
    assert written[at - 1][0] in ("node_id", "broker_id")
    assert written[at - 1][1] == "i32"
    assert written[at + 1] == ("port", "i32")


@pytest.mark.slow
@pytest.mark.integration
def test_table_matches_the_kafka_clients_jars() -> None:
    directories = [cached_jar_directory(release) for release in RELEASES]
    if shutil.which("java") is None or not all(directory.is_dir() for directory in directories):
        pytest.fail("Java and the jars of kafka-clients are needed: make setup")
    text = render(merge([dump(directory) for directory in directories]))
    assert text == TABLE.read_text(encoding="utf-8"), "run `make table`"


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.advertised], ids=repr)
def test_no_client_is_offered_an_address_that_is_not_rewritten(spec: ApiSpec) -> None:
    """A host beside a port is where somebody connects; user_endpoint is the application's own (KIP-1071)."""
    layout = spec.response_layout.replace("user_endpoint:{host:string port:u16}", "")
    assert layout.count("host:string port:") == (1 if spec.endpoints or names_controllers(spec) else 0)


def test_controllers_are_named_by_describe_quorum_from_v2_on() -> None:
    assert [names_controllers(SPECS[key_version(55, version)]) for version in range(3)] == [False, False, True]
