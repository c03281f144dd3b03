"""Every setting of ``sluice.yaml``: the name the program reads, and as its alias the key the operator writes.

Descriptions and defaults here are what docs/configuration.md is generated from.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationInfo, field_validator
from pydantic_core import CoreSchema, core_schema

from config.brokers import BrokerPorts, PortClaim, find_claimed_twice, parse_broker_ports
from config.nodes import Mapping, Scalar
from config.problems import InvalidValue, InvalidValues
from config.units import (
    Address,
    parse_address,
    parse_advertised,
    parse_bytes,
    parse_duration_ms,
    parse_duration_s,
    parse_flag,
    parse_name,
    parse_reachable,
    parse_whole,
)


@dataclass(frozen=True)
class Written:
    """How a setting is written in the file. A value made in Python passes as it is: its type was checked already."""

    kind: str
    parse: Callable[[Any], object]
    takes: type = Scalar
    positive: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: object) -> object:
        if value is None:
            raise InvalidValue("has no value", f"write {self.kind}, or leave the key out")
        if not isinstance(value, Scalar | list | dict):
            return value
        if not isinstance(value, self.takes):
            raise InvalidValue(f"must be {self.kind}")
        parsed = self.parse(value)
        if self.positive and parsed == 0:
            raise InvalidValue(f"{value} is too small", "it must be more than 0")
        return parsed


Name = Annotated[str, Written("a name", parse_name)]
Host = Annotated[str, Written("a host", parse_advertised)]
BindAddress = Annotated[Address, Written("an address to bind", parse_address)]
BrokerAddress = Annotated[Address, Written("host:port", parse_reachable)]
Bytes = Annotated[int, Written("a size", parse_bytes, positive=True)]
Milliseconds = Annotated[int, Written("a duration", parse_duration_ms, positive=True)]
Seconds = Annotated[float, Written("a duration", parse_duration_s, positive=True)]
SecondsOrZero = Annotated[float, Written("a duration", parse_duration_s)]
Count = Annotated[int, Written("a whole number", parse_whole, positive=True)]
CountOrZero = Annotated[int, Written("a whole number", parse_whole)]
Flag = Annotated[bool, Written("true or false", parse_flag)]
FilePath = Annotated[Path, Written("a path", Path)]
Brokers = Annotated[BrokerPorts, Written("node ids and ports", parse_broker_ports, takes=Mapping)]


class Section(BaseModel):
    """What all settings share: they never change, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class Cluster(Section):
    """The Kafka cluster behind the proxy."""

    name: Name = Field(description="A name for the cluster; it stands in logs and metrics.")
    bootstrap: tuple[BrokerAddress, ...] = Field(
        description="Brokers to ask for the others, as in `bootstrap.servers`."
    )
    refresh_s: Seconds = Field(
        30.0, alias="refresh", description="How often the brokers' own addresses are asked for again."
    )
    connect_timeout_s: Seconds = Field(
        10.0, alias="connect_timeout", description="How long a connection to a broker may take to be made."
    )

    @field_validator("bootstrap")
    @classmethod
    def _at_least_one(cls, bootstrap: tuple[Address, ...]) -> tuple[Address, ...]:
        if not bootstrap:
            raise InvalidValue("is empty", "write at least one broker")
        return bootstrap


class Listener(Section):
    """Where clients connect: one bootstrap address and one port for each broker."""

    name: Name = Field(description="The listener's name, in logs and metrics.")
    bind: BindAddress = Field(description="The address that clients use as `bootstrap.servers`.")
    advertise: Host = Field(description="The host that clients are told for every broker: it must lead to this proxy.")
    brokers: Brokers = Field(
        description="Ranges of node ids and the ports that stand for them, of equal length: "
        '`{"0-9": "9100-9109", "42": "9142"}`. Bound on the host of `bind`.'
    )
    authentication: Literal["none", "sasl"] = Field(
        "none",
        description="`sasl` if the brokers behind it demand SASL: requests are held to "
        "`limits.request_before_authentication` until the broker has answered a first ordinary one.",
    )

    def port_claims(self, index: int) -> Iterator[PortClaim]:
        """Every port that this listener binds; ``index`` is its place in the file."""
        yield PortClaim.of(self.bind, f"the bootstrap port of listener {self.name}", index, "bind")
        for ports in self.brokers.ports():
            yield PortClaim(self.bind.host, ports, f"the brokers of listener {self.name}", (index, "brokers"))


class FileStore(Section):
    """Quotas in a YAML file, loaded again on SIGHUP and when it changes."""

    type: Literal["file"] = Field("file", description="The kind of store.")
    path: FilePath = Field(description="The file, relative to the configuration file. It must be there at the start.")

    @field_validator("path")
    @classmethod
    def _beside_the_configuration(cls, path: Path, info: ValidationInfo) -> Path:
        folder: Path | None = info.context
        return folder / path if folder is not None else path


class Window(Section):
    """How usage is measured, as `quota.window.num` and `quota.window.size.seconds` of a broker."""

    samples: Count = Field(11, description="How many samples are kept: `quota.window.num`.")
    size_ms: Milliseconds = Field(
        1000, alias="size", description="How long one sample lasts: `quota.window.size.seconds`."
    )


class Quotas(Section):
    """Where quotas come from and how they are enforced."""

    store: FileStore = Field(description="Where quotas are kept.")
    mode: Literal["enforce", "shadow", "off"] = Field(
        "enforce", description="`shadow` measures and reports what would be throttled and delays nothing."
    )
    response: Literal["mute", "delay", "auto"] = Field(
        "auto",
        description="`mute` answers at once and stops reading (KIP-219), `delay` holds the response back (KIP-13); "
        "`auto` delays for API versions whose clients do not know KIP-219, and mutes for the others.",
    )
    window: Window = Field(Window(), description="How usage is measured.")
    max_delay_ms: Milliseconds | None = Field(
        None, alias="max_delay", description="The most that any one throttle may delay; without it there is no ceiling."
    )


class Limits(Section):
    """What one connection, and all of them together, may take."""

    request_bytes: Bytes = Field(
        100 * 2**20, alias="request", description="The largest request: `socket.request.max.bytes`."
    )
    request_before_authentication_bytes: Bytes = Field(
        512 * 2**10,
        alias="request_before_authentication",
        description="The largest request before authentication, on listeners with `authentication: sasl`.",
    )
    response_bytes: Bytes = Field(256 * 2**20, alias="response", description="The largest response of a broker.")
    connections: Count | None = Field(
        None, description="The most client connections at once; without it, what the descriptor limit leaves room for."
    )


class KafkaCompat(Section):
    """What clients may negotiate with the brokers through the proxy."""

    fetch_max_version: CountOrZero | None = Field(
        15,
        description="The highest version of Fetch that clients are offered. From 16 on, responses carry addresses "
        "behind their records and are held in memory whole, up to `limits.response` for a connection.",
    )
    share_groups: Flag = Field(
        False,
        description="Whether clients are offered the APIs of share groups (KIP-932), "
        "whose responses are held in memory whole.",
    )


class Admin(Section):
    """The HTTP port with `/metrics`, `/livez` and `/readyz`."""

    bind: BindAddress = Field(
        Address("127.0.0.1", 9404), description="Where it listens. It has no authentication: keep it off the network."
    )
    max_entities: CountOrZero = Field(
        2000, description="The most quota entities with metrics of their own; the rest is summed up as `other`."
    )


class Drain(Section):
    """Stopping."""

    timeout_s: SecondsOrZero = Field(
        30.0, alias="timeout", description="How long SIGTERM waits for what is in flight before connections are cut."
    )


class Log(Section):
    """What the proxy writes to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least level that is written.")
    format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto` writes for people on a terminal, and one JSON object a line elsewhere."
    )


class Settings(Section):
    """Everything in ``sluice.yaml``."""

    cluster: Cluster
    listeners: tuple[Listener, ...]
    quotas: Quotas
    limits: Limits = Limits()
    kafka: KafkaCompat = KafkaCompat()
    admin: Admin = Field(Admin(), validate_default=True)
    drain: Drain = Drain()
    log: Log = Log()

    @field_validator("listeners")
    @classmethod
    def _apart(cls, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        if not listeners:
            raise InvalidValue("is empty", "write at least one listener")
        wrong = InvalidValues()
        names: dict[str, int] = {}
        for index, listener in enumerate(listeners):
            with wrong.at(index, "name"):
                if names.setdefault(listener.name, index) != index:
                    raise InvalidValue(f"{listener.name!r} is the name of another listener", "give each its own")
        find_claimed_twice(_port_claims(listeners), wrong)
        wrong.raise_if_any()
        return listeners

    @field_validator("admin")
    @classmethod
    def _beside_the_listeners(cls, admin: Admin, info: ValidationInfo) -> Admin:
        claim = PortClaim.of(admin.bind, "the admin port", "bind")
        wrong = InvalidValues()
        find_claimed_twice([*_port_claims(info.data.get("listeners", ())), claim], wrong)
        wrong.raise_if_any()
        return admin


def _port_claims(listeners: tuple[Listener, ...]) -> list[PortClaim]:
    return [claim for index, listener in enumerate(listeners) for claim in listener.port_claims(index)]
