"""Messages between instances, in Kafka's group protocol: each says what it is, and the leader says who owns what.

A message is a version, zlib of JSON, and an HMAC-SHA256 by the secret that all instances have: otherwise, any user
who may join the group could send clients to an address of its own. The signature covers what the message is for (its
``Label``): whoever has seen one could otherwise send it again, later or to another instance.
"""

import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.brokers import BrokerPorts, BrokerRange, Endpoint
from proxy.owners.map import OwnersMap

_VERSION: Final = b"\2"
_SIGNATURE_BYTES: Final = 32
MOST_BYTES: Final = 64 * 1024
_MOST_TEXT_BYTES: Final = 1024 * 1024

Text = Annotated[str, Field(max_length=255)]
NodeId = Annotated[int, Field(ge=0, lt=2**31)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Port = Annotated[int, Field(gt=0, lt=2**16)]


class MessageError(Exception):
    """A message is not signed, or not understood."""


class Kind(StrEnum):
    MEMBER = "member"
    MAP = "map"
    DEMAND = "demand"
    CHANGE = "change"
    QUESTION = "question"


class Label(NamedTuple):
    """The purpose of a message: it is signed with it, and taken for no other."""

    kind: Kind
    instance: str
    """The receiver; "" in a member's message, which is for any leader."""
    member_id: str
    """The receiver's; in a member's message its own. The coordinator gives one only once."""
    at: int | str = ""
    """The generation of a map, the turn in which demand was asked for; other messages have their turn inside."""


@dataclass(frozen=True, slots=True)
class Signing:
    """The secret of all instances, and the group that a message is for."""

    secret: bytes
    group: str

    def of(self, label: Label, digest: bytes) -> bytes:
        """Return the signature of a message with this SHA-256."""
        return hmac.digest(self.secret, json.dumps([self.group, *label]).encode() + digest, "sha256")


class Packed:
    """A message that is not signed yet: it can be signed for several receivers. Raises MessageError if too large."""

    def __init__(self, text: bytes, most_bytes: int = MOST_BYTES, level: int = -1) -> None:
        self._body = _VERSION + zlib.compress(text, level)
        self._digest = hashlib.sha256(self._body).digest()
        if len(self._body) + _SIGNATURE_BYTES > most_bytes:
            raise MessageError(f"too large: {len(self._body)} bytes, and at most {most_bytes} are taken")

    def signed(self, signing: Signing, label: Label) -> bytes:
        return self._body + signing.of(label, self._digest)


def unseal(
    data: bytes,
    signing: Signing,
    label: Label,
    most_bytes: int = MOST_BYTES,
    most_text_bytes: int = _MOST_TEXT_BYTES,
) -> bytes:
    """Return the text of a message. Raises MessageError."""
    if len(data) > most_bytes:
        raise MessageError(f"too large: {len(data)} bytes, and at most {most_bytes} are taken")
    body, signature = data[:-_SIGNATURE_BYTES], data[-_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, signing.of(label, hashlib.sha256(body).digest())):
        said = "not signed with the secret of this instance, or for another receiver or time"
        raise MessageError(f"{said}: is owners.secret_file the same everywhere?")
    if body[:1] != _VERSION:
        raise MessageError(f"of another version, {body[:1].hex()}")
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(body[1:], most_text_bytes)
    except zlib.error as error:
        raise MessageError(f"not understood: {error}") from None
    if not unpacking.eof:
        raise MessageError(f"larger than {most_text_bytes} bytes")
    return text


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)  # unknown fields are ignored: a newer version may have more

    @property
    def packed(self) -> Packed:
        """The message, to be signed. Raises MessageError if it is too large."""
        return Packed(self.model_dump_json().encode())

    @classmethod
    def unpack(cls, data: bytes, signing: Signing, label: Label) -> Self:
        """Return the message in ``data``. Raises MessageError."""
        try:
            return cls.model_validate_json(unseal(data, signing, label))
        except ValidationError as error:
            raise MessageError(f"not understood: {str(error)[:200]}") from None


class EndpointMessage(BaseModel):
    model_config = ConfigDict(frozen=True)
    host: Text
    port: Port | None
    ranges: tuple[tuple[NodeId, Port, Annotated[int, Field(gt=0, lt=2**16)]], ...] | None
    """First node id, first port, number of both."""

    @classmethod
    def of(cls, endpoint: Endpoint) -> Self:
        ports = endpoint.ports
        each = [(r.node_ids.start, r.advertised.start, len(r.node_ids)) for r in ports.ranges] if ports else []
        return cls(host=endpoint.host, port=endpoint.port, ranges=None if ports is None else tuple(each))

    @property
    def endpoint(self) -> Endpoint:
        if self.ranges is None:
            return Endpoint(self.host, self.port, None)
        each = [(range(ids, ids + number), range(ports, ports + number)) for ids, ports, number in self.ranges]
        ranges = tuple(BrokerRange(ids, ports, ports) for ids, ports in each)
        return Endpoint(self.host, self.port, BrokerPorts(ranges))


class MemberMessage(_Message):
    """The message of an instance that joins, about itself."""

    instance: Text
    boot: int
    """Changes with each start."""
    turn: int
    """Grows with each message of this instance, so that an earlier one is known for what it is."""
    weight: Number
    """The load that it wants, relative to the others; 0: none, as it is about to stop."""
    epoch: int
    """The generation of the map that made it own ``owned``."""
    owned: tuple[NodeId, ...]
    load: Mapping[NodeId, Number]
    """By broker that it owns: CPU ms a second."""
    endpoints: Mapping[Text, EndpointMessage]
    """Its addresses, by listener."""
    probe: tuple[Text, Port] | None
    """Its admin port, which others may ask whether it is alive."""


class ChangeMessage(_Message):
    """A change that an operator has asked another instance for."""

    instance: Text
    """The one that was asked."""
    boot: int
    turn: int
    """Grows with each change since the boot."""
    what: Text
    form: Mapping[Text, Annotated[str, Field(max_length=8192)]]
    who: Text
    source: Text
    """The address of who asked."""


class MapMessage(_Message):
    """The leader's message to all members, signed for each."""

    epoch: int
    """The generation of the group."""
    owners: Mapping[NodeId, Text]
    members: Mapping[Text, MemberMessage]
    """By instance."""
    ids: Mapping[Text, Text]
    """Member ids, by instance."""

    @property
    def owners_map(self) -> OwnersMap:
        able = tuple(name for name, each in self.members.items() if each.weight > 0) or tuple(self.members)
        return OwnersMap(
            tuple((range(node_id, node_id + 1), owner) for node_id, owner in sorted(self.owners.items())),
            {
                name: {listener: place.endpoint for listener, place in each.endpoints.items()}
                for name, each in self.members.items()
            },
            tuple(sorted(able)),
        )
