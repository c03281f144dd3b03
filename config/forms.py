"""The types of settings: which texts of the file each accepts, and the parsed value."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from config.brokers import BrokerPorts, parse_broker_ports
from config.claims import checked_claim
from config.nodes import Mapping, Scalar, Sequence
from config.problems import InvalidValue, explained
from config.units import (
    Address,
    AdvertisedAddress,
    Network,
    parse_address,
    parse_advertised,
    parse_buffer,
    parse_bytes,
    parse_duration_ms,
    parse_duration_s,
    parse_flag,
    parse_host,
    parse_host_template,
    parse_ip_numbers,
    parse_name,
    parse_network,
    parse_number,
    parse_path,
    parse_reachable,
    parse_whole,
    parse_workers,
)

_EXAMPLES: Final = {
    "a name": "orders",
    "a text": '"one text"',
    "a claim": "preferred_username",
    "a host": "kafka.example.com",
    "host or host:port": "kafka.example.com:9092",
    "a host with {node_id}": "b{node_id}.example.com",
    "an address to bind": "127.0.0.1:9092",
    "host:port": "kafka-1.example.com:9092",
    "an IP network": "10.0.0.0/8",
    "instances and node ids": '{edge-1: "0-2", edge-2: "3-5"}',
    "node ids and ports": '{"0-9": "9100-9109"}',
    "a size": "10MiB",
    "a duration": "30s",
    "a whole number": "100",
    "a number of workers": "4",
    "a number": "1.5",
    "true or false": "true",
    "a path": "tls/key.pem",
}


@dataclass(frozen=True)
class Written:
    """The written form of a setting. Values set in Python are not parsed: their type was already checked."""

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
        if not isinstance(value, Scalar | Sequence | Mapping):
            return value
        if not isinstance(value, self.takes):
            example = _EXAMPLES.get(self.kind)
            raise InvalidValue(f"must be {self.kind}", f"write it like {example}" if example else "")
        with explained(value):
            parsed = self.parse(value)
        if self.positive and parsed == 0:
            raise InvalidValue(f"{value} is too small", "it must be more than 0")
        return parsed


def _beside_the_configuration(path: Path, info: ValidationInfo) -> Path:
    folder: Path | None = info.context
    return folder / path if folder is not None else path


def _given(section: object) -> object:
    if section is None:
        raise PydanticKnownError("model_type", {"class_name": "section"})
    return section


Name = Annotated[str, Written("a name", parse_name)]
Text = Annotated[str, Written("a text", str)]
Host = Annotated[str, Written("a host", parse_host)]
Advertise = Annotated[AdvertisedAddress, Written("host or host:port", parse_advertised)]
HostTemplate = Annotated[str, Written("a host with {node_id}", parse_host_template)]
BindAddress = Annotated[Address, Written("an address to bind", parse_address)]
BrokerAddress = Annotated[Address, Written("host:port", parse_reachable)]
IpNetwork = Annotated[Network, Written("an IP network", parse_network)]
Brokers = Annotated[BrokerPorts, Written("node ids and ports", parse_broker_ports, takes=Mapping)]
Bytes = Annotated[int, Written("a size", parse_bytes, positive=True)]
BufferBytes = Annotated[int, Written("a size or -1", parse_buffer)]
Milliseconds = Annotated[int, Written("a duration", parse_duration_ms, positive=True)]
Seconds = Annotated[float, Written("a duration", parse_duration_s, positive=True)]
SecondsOrZero = Annotated[float, Written("a duration", parse_duration_s)]
Claim = Annotated[str, Written("a claim", checked_claim)]
Count = Annotated[int, Written("a whole number", parse_whole, positive=True)]
CountOrZero = Annotated[int, Written("a whole number", parse_whole)]
WorkerCount = Annotated[int, Written("a number of workers", parse_workers, positive=True)]
Number = Annotated[float, Written("a number", parse_number)]
NumbersByIp = Annotated[dict[str, int], Written("IP addresses and numbers", parse_ip_numbers, takes=Mapping)]
Flag = Annotated[bool, Written("true or false", parse_flag)]
FilePath = Annotated[Path, Written("a path", parse_path), AfterValidator(_beside_the_configuration)]


_Value = TypeVar("_Value")


def not_empty(fix: str, message: str = "is empty") -> AfterValidator:
    """Return a validator that refuses an empty list."""

    def check(values: tuple[_Value, ...]) -> tuple[_Value, ...]:
        if not values:
            raise InvalidValue(message, fix)
        return values

    return AfterValidator(check)


def within(least: float, most: float, message: str, fix: str) -> AfterValidator:
    """Return a validator that refuses a number outside a range; ``message`` may quote it as ``{}``."""

    def check(value: float) -> float:
        if not least <= value <= most:
            raise InvalidValue(message.format(value), fix)
        return value

    return AfterValidator(check)


_Section = TypeVar("_Section", bound="Section")

Given = Annotated[_Section | None, BeforeValidator(_given)]
"""An optional section. An empty ``tls:`` is refused: it would silently mean no TLS."""


class Section(BaseModel):
    """The base of all sections: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


def described_by(field: FieldInfo) -> list[type[BaseModel]]:
    """Return the models of a section: several if its ``type`` selects one; none for a plain setting."""
    return [*_models(field.annotation)]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
