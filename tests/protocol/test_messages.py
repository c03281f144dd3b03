"""Whole messages by their layouts, beside a codec of the tests and kafka-python's; the quota messages made of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import client_quotas as theirs

from protocol.client_quotas import (
    ALTER,
    ANY,
    DEFAULT,
    DESCRIBE,
    EXACT,
    Altering,
    Component,
    Described,
    DescribedAll,
    Describing,
    Op,
    QuotaEntry,
    Result,
    alter_request,
    altered_answer,
    describe_request,
    described_answer,
    read_altered,
    read_altering,
    read_described,
    read_describing,
)
from protocol.errors import Cause, ProtocolError
from protocol.headers import request_body_offset
from protocol.locator import response_body_offset
from protocol.messages import MOST_ELEMENTS, read_message, write_message
from protocol.table import SPECS, ApiSpec, key_version
from tests.protocol.encode import encode_frame, encode_request
from tests.protocol.messages import requests, responses

KEYS = (DESCRIBE, ALTER)
ALL = [spec for spec in SPECS.values() if spec.api_key in KEYS]
CODECS = {
    DESCRIBE: (theirs.DescribeClientQuotasRequest, theirs.DescribeClientQuotasResponse),
    ALTER: (theirs.AlterClientQuotasRequest, theirs.AlterClientQuotasResponse),
}
ALICE = (("user", "alice"), ("client-id", None))
ENTRIES = (
    QuotaEntry(ALICE, (Op("producer_byte_rate", 1024.0), Op("consumer_byte_rate", None))),
    QuotaEntry((("ip", "10.0.0.1"),), (Op("connection_creation_rate", 5.0),)),
)


def decoded(message: Any, spec: ApiSpec, frame: bytes) -> Any:
    return message.decode(frame[response_body_offset(spec, frame, 0) :], version=spec.api_version)


def without_tags(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: without_tags(value) for name, value in values.items() if name != "_unknown_tags"}
    return [without_tags(value) for value in values] if isinstance(values, list) else values


@given(data=st.data(), spec=st.sampled_from(ALL), request=st.booleans())
def test_message_is_read_back_as_written(data: st.DataObject, spec: ApiSpec, request: bool) -> None:
    layout = spec.request_layout if request else spec.response_layout
    values = data.draw(requests(spec) if request else responses(spec))
    frame = encode_request(spec, values) if request else encode_frame(spec, values)
    body = request_body_offset(spec, frame, 0, len(frame)) if request else response_body_offset(spec, frame, 0)
    assert read_message("it", layout, frame, body, len(frame)) == without_tags(values)
    written = write_message(layout, values)
    assert read_message("it", layout, written, 0, len(written)) == without_tags(values)
    theirs_ = CODECS[spec.api_key][not request].decode(written, version=spec.api_version)
    assert theirs_.to_dict(json=False) == without_tags(values)


@given(data=st.data(), spec=st.sampled_from(ALL))
def test_a_message_that_was_cut_is_refused(data: st.DataObject, spec: ApiSpec) -> None:
    body = write_message(spec.request_layout, data.draw(requests(spec)))
    size = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ProtocolError) as error:
        read_message("it", spec.request_layout, body, 0, size)
    assert error.value.cause is Cause.BAD_BODY


@pytest.mark.parametrize("spec", ALL, ids=str)
def test_message_with_too_large_count_is_refused_unread(spec: ApiSpec) -> None:
    count = (2**31 - 1).to_bytes(4, "big") if not spec.api_version else b"\xff\xff\xff\xff\x07"
    with pytest.raises(ProtocolError, match=f"more than {MOST_ELEMENTS}") as error:
        read_message("it", spec.request_layout, count + bytes(100), 0, len(count) + 100)
    assert error.value.cause is Cause.FRAME_TOO_LARGE


def test_text_that_is_no_utf_8_is_refused() -> None:
    spec = SPECS[key_version(DESCRIBE, 0)]
    body = write_message(
        spec.request_layout, {"components": [Component("user", EXACT, "xx")._asdict()], "strict": True}
    )
    with pytest.raises(ProtocolError, match="not UTF-8"):
        read_message("it", spec.request_layout, body.replace(b"xx", b"\xff\xfe"), 0, len(body))


@pytest.mark.parametrize("version", [0, 1])
def test_a_describe_is_read_and_answered(version: int) -> None:
    spec = SPECS[key_version(DESCRIBE, version)]
    asked = Describing((Component("user", EXACT, "alice"), Component("client-id", DEFAULT), Component("ip", ANY)), True)
    values = {"components": [each._asdict() for each in asked.components], "strict": asked.strict}
    assert read_describing(spec, encode_request(spec, values)) == asked
    frame = described_answer(spec, 7, DescribedAll((Described(ALICE, (("producer_byte_rate", 1e7),)),)))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    answer = decoded(theirs.DescribeClientQuotasResponse, spec, frame)
    assert answer.entries[0].entity[1].entity_name is None
    assert answer.entries[0].values[0].value == 1e7
    refused = described_answer(spec, 7, DescribedAll((), 42, "no"))
    answer = theirs.DescribeClientQuotasResponse.decode(
        refused[response_body_offset(spec, refused, 0) :], version=version
    )
    assert (answer.error_code, answer.error_message, answer.entries) == (42, "no", None)


@pytest.mark.parametrize("version", [0, 1])
def test_an_alter_is_read_and_answered(version: int) -> None:
    spec = SPECS[key_version(ALTER, version)]
    values = {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entry.entity],
                "ops": [{"key": op.key, "value": op.value or 0.0, "remove": op.value is None} for op in entry.ops],
            }
            for entry in ENTRIES
        ],
        "validate_only": True,
    }
    assert read_altering(spec, encode_request(spec, values)) == Altering(ENTRIES, True)
    frame = altered_answer(spec, -1, [Result(ALICE), Result((), 42, "no")])
    answer = theirs.AlterClientQuotasResponse.decode(frame[response_body_offset(spec, frame, 0) :], version=version)
    assert [(each.error_code, each.error_message, len(each.entity)) for each in answer.entries] == [
        (0, None, 2),
        (42, "no", 0),
    ]


def test_quota_requests_and_responses_are_read_back() -> None:
    spec = SPECS[key_version(DESCRIBE, 0)]
    asked = Describing((Component("user", ANY),), False)
    assert read_describing(spec, describe_request(asked).frame("sluice", 1)) == asked
    described = DescribedAll((Described(ALICE, (("request_percentage", 0.5),)),), 0, None)
    assert read_described(described_answer(spec, 1, described)) == described
    spec = SPECS[key_version(ALTER, 0)]
    assert read_altering(spec, alter_request(Altering(ENTRIES)).frame("sluice", 1)) == Altering(ENTRIES)
    results = (Result(ALICE), Result((("ip", None),), 42, "no"))
    assert read_altered(altered_answer(spec, 1, results)) == results
    with pytest.raises(ProtocolError):
        read_altered(b"\0\0\0\4\0\0\0\1"[:7])


def test_a_cluster_may_have_many_quotas() -> None:
    """What a client asks for is bounded; what brokers of our own answer is as long as their quotas are."""
    entries = tuple(Described((("user", f"u{number}"),), (("producer_byte_rate", 1.0),)) for number in range(10_000))
    described = DescribedAll(entries, 0, None)
    assert read_described(described_answer(SPECS[key_version(DESCRIBE, 0)], 1, described)) == described
