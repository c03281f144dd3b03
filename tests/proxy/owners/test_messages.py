"""Messages between instances: what is signed is read, and nothing else, however it comes."""

import json
import zlib
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.brokers import Endpoint, parse_broker_ports
from proxy.owners.messages import (
    MOST_BYTES,
    EndpointMessage,
    Kind,
    Label,
    MapMessage,
    MemberMessage,
    MessageError,
    Signing,
)
from tests.proxy.owners.test_assignment import member

SIGNING = Signing(b"secret", "group")
PORTS = Endpoint("a.test", 9092, parse_broker_ports({"0-9": "9100-9109", "42": "9142"}))
HOSTS = Endpoint("b{node_id}.test", 9093, None)
ME = member(
    "a",
    owned=(1, 2),
    load={1: 2.5},
    endpoints={"P": EndpointMessage.of(PORTS), "T": EndpointMessage.of(HOSTS)},
    probe=("h", 94),
)


LABEL = Label(Kind.MAP, "a", "a-1", 7)


def signed(said: object, version: bytes = b"\2") -> bytes:
    body = version + zlib.compress(json.dumps(said).encode())
    return body + SIGNING.of(LABEL, sha256(body).digest())


def unpacked(data: bytes) -> MemberMessage:
    return MemberMessage.unpack(data, SIGNING, LABEL)


def test_packed_member_and_map_messages_are_unpacked_unchanged() -> None:
    assert unpacked(ME.packed.signed(SIGNING, LABEL)) == ME
    whole = MapMessage(epoch=3, owners={1: "a"}, members={"a": ME}, ids={"a": "a-1"})
    assert MapMessage.unpack(whole.packed.signed(SIGNING, LABEL), SIGNING, LABEL) == whole
    assert (ME.endpoints["P"].endpoint, ME.endpoints["T"].endpoint) == (PORTS, HOSTS)
    newer = ME.model_dump(mode="json") | {"added": 1}
    assert unpacked(signed(newer)) == ME


@pytest.mark.parametrize("other", [Signing(b"other", "group"), Signing(b"secret", "other"), Signing(b"", "group")])
def test_message_with_other_secret_or_group_is_refused(other: Signing) -> None:
    with pytest.raises(MessageError, match="secret_file the same everywhere"):
        unpacked(ME.packed.signed(other, LABEL))


@pytest.mark.parametrize(
    "other",
    [
        LABEL._replace(kind=Kind.MEMBER),
        LABEL._replace(kind=Kind.DEMAND),
        LABEL._replace(instance="b"),
        LABEL._replace(member_id="a-2"),
        LABEL._replace(at=6),
        LABEL._replace(at="7"),
        Label(Kind.MAP, "", "aa-1", 7),
    ],
)
def test_message_for_another_receiver_kind_or_generation_is_refused(other: Label) -> None:
    with pytest.raises(MessageError, match="or for another receiver or time"):
        unpacked(ME.packed.signed(SIGNING, other))


@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(1, 255))
def test_altered_truncated_or_random_messages_are_refused(noise: bytes, position: int, flip: int) -> None:
    changed = bytearray(ME.packed.signed(SIGNING, LABEL))
    changed[position % len(changed)] ^= flip
    for data in (noise, bytes(changed), ME.packed.signed(SIGNING, LABEL)[: position % len(changed)]):
        with pytest.raises(MessageError):
            unpacked(data)


@pytest.mark.parametrize(
    "said",
    [
        [],
        {},
        {**ME.model_dump(mode="json"), "owned": [-1]},
        {**ME.model_dump(mode="json"), "weight": -1},
        {**ME.model_dump(mode="json"), "instance": "x" * 256},
        {**ME.model_dump(mode="json"), "load": {"1": "NaN"}},
    ],
)
def test_signed_message_with_invalid_fields_is_refused(said: object) -> None:
    with pytest.raises(MessageError, match="not understood"):
        unpacked(signed(said))


def test_oversized_messages_and_other_versions_are_refused() -> None:
    with pytest.raises(MessageError, match="of another version, 01"):
        unpacked(signed({}, b"\1"))
    with pytest.raises(MessageError, match="too large"):
        unpacked(bytes(MOST_BYTES + 1))
    with pytest.raises(MessageError, match="larger than"):
        unpacked(signed(" " * 2_000_000))
    huge = member("a", load={node: node * 1.2345678e-3 for node in range(30_000)})
    with pytest.raises(MessageError, match="too large"):
        _ = huge.packed
