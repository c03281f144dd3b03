"""The ``owners`` section: several instances of the proxy in front of one cluster, each with brokers of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from config.brokers import MAX_NODE_ID, BrokerPorts, Endpoint, parse_broker_ports, require_apart
from config.forms import FilePath, Flag, Name, Number, Seconds, Section, Written
from config.problems import InvalidValue, InvalidValues
from config.units import AdvertisedAddress, parse_advertised, parse_host_template, parse_range

_INSTANCE_KEYS: Final = ("brokers", "advertise")
_ADDRESS_KEYS: Final = ("host", "brokers")
_EXAMPLE: Final = 'write it like {brokers: "3-5", advertise: {INTERNAL: edge-2.example.com}}'


@dataclass(frozen=True, slots=True)
class FixedInstance:
    """The brokers that one instance owns, and its addresses for them."""

    brokers: tuple[range, ...]
    advertise: Mapping[str, Endpoint] = field(default_factory=dict)
    """By listener; as written, without what the listeners of this instance have as well."""

    def owns(self, node_id: int) -> bool:
        return any(node_id in each for each in self.brokers)


@dataclass(frozen=True, slots=True)
class FixedOwners:
    """The owners of all brokers, by instance."""

    instances: Mapping[str, FixedInstance]

    def owner_of(self, node_id: int) -> str | None:
        """Return the instance that owns a broker, None if none does."""
        return next((name for name, each in self.instances.items() if each.owns(node_id)), None)


def parse_fixed(written: Mapping[str, object]) -> FixedOwners:
    """Parse ``{edge-1: "0-2", edge-2: {brokers: "3-5", advertise: {INTERNAL: edge-2.example.com}}}``.

    Raises InvalidValues with everything that is wrong.
    """
    instances: dict[str, FixedInstance] = {}
    wrong = InvalidValues()
    for name, value in written.items():
        with wrong.at(name):
            if not name:
                raise InvalidValue("is an empty name", "write the name of an instance")
            found = _instance(wrong, name, value)
            steps = (name, "brokers") if isinstance(value, Mapping) else (name,)
            for ids in found.brokers:
                with wrong.at(*steps):
                    _require_unowned(ids, instances)
            instances[name] = found
    if not written:
        raise InvalidValue("names no instance", 'write {edge-1: "0-2", edge-2: "3-5"}')
    wrong.raise_if_any()
    return FixedOwners(instances)


def _require_unowned(ids: range, instances: Mapping[str, FixedInstance]) -> None:
    for owner, other in instances.items():
        for taken in other.brokers:
            require_apart("broker", ids, taken, owner, "give each broker one owner")


def _instance(wrong: InvalidValues, name: str, value: object) -> FixedInstance:
    if isinstance(value, str):
        return FixedInstance(tuple(_node_ids(value)))
    if not isinstance(value, Mapping):
        raise InvalidValue("must be node ids, or a section with brokers and advertise", _EXAMPLE)
    wrong.require_known((name,), value, _INSTANCE_KEYS)
    advertise: dict[str, Endpoint] = {}
    written = value.get("advertise", {})
    with wrong.at(name, "advertise"):
        if not isinstance(written, Mapping):
            raise InvalidValue("must be the address for each listener", _EXAMPLE)
        for listener, address in written.items():
            with wrong.at(name, "advertise", listener):
                advertise[listener] = _endpoint(wrong, (name, "advertise", listener), address)
    ids: tuple[range, ...] = ()
    with wrong.at(name, *(["brokers"] if "brokers" in value else [])):
        if not isinstance(value.get("brokers"), str):
            raise InvalidValue("brokers is missing" if "brokers" not in value else "must be node ids", _EXAMPLE)
        ids = tuple(_node_ids(value["brokers"]))
    return FixedInstance(ids, advertise)


def _endpoint(wrong: InvalidValues, at: tuple[str, ...], value: object) -> Endpoint:
    """Parse a host, or ``{host: edge-2.example.com, brokers: {"3-5": "9203-9205"}}``."""
    ports: BrokerPorts | None = None
    if isinstance(value, Mapping):
        wrong.require_known(at, value, _ADDRESS_KEYS)
        if isinstance(value.get("brokers"), Mapping):
            with wrong.at(*at, "brokers"):
                ports = parse_broker_ports(value["brokers"])
        elif "brokers" in value:
            raise InvalidValue("brokers must be node ids and ports", 'write it like {"3-5": "9203-9205"}')
        value = value.get("host")
    if not isinstance(value, str):
        raise InvalidValue("has no host", "write the host that leads to that instance")
    told = _host(value)
    return Endpoint(told.host, told.port, ports)


def _host(text: str) -> AdvertisedAddress:
    """Parse a host, or a host name for each broker, with or without a port."""
    if "{node_id}" not in text:
        return parse_advertised(text)
    name, colon, _ = text.partition(":")
    template = parse_host_template(name)
    port = parse_advertised(text.replace("{node_id}", "0")).port if colon else None
    return AdvertisedAddress(template, port)


def _node_ids(text: str) -> Iterator[range]:
    """Parse ``0-2``, or ``0-2, 7``."""
    for part in text.split(","):
        ids = parse_range(part.strip())
        if ids[-1] > MAX_NODE_ID:
            raise InvalidValue(f"{part.strip()!r} is out of range", f"a node id is from 0 to {MAX_NODE_ID}")
        yield ids


Fixed = Annotated[FixedOwners, Written("instances and node ids", parse_fixed, takes=Mapping)]


class Owners(Section):
    """Several instances of one cluster's proxy: each broker is owned by one, which alone counts for its quotas."""

    instance: Name | None = Field(
        None, description="The name of this instance: unique, and the same after a restart. Default: the host name."
    )
    group: Name | None = Field(
        None,
        description="The Kafka group in which the instances elect owners. The proxy's own user (`cluster.sasl`) "
        "needs READ on it.",
    )
    secret_file: FilePath | None = Field(
        None,
        validate_default=True,
        description="With `group`: a file with a secret, the same at all instances, that signs their messages.",
    )
    session_s: Seconds = Field(
        6.0,
        alias="session",
        description="An instance whose heartbeats have stopped for so long is replaced. At least "
        "`group.min.session.timeout.ms` of the brokers.",
    )
    heartbeat_s: Seconds = Field(
        1.0,
        alias="heartbeat",
        description="Interval of heartbeats: others see a change of the group at their next one.",
    )
    weight: Number = Field(
        1.0,
        description="The share of the load that this instance wants, relative to others. 0: none while others run.",
    )
    probe: Flag = Field(
        True,
        description="Whether each instance asks the next one on its admin port, and has it replaced at once if "
        "its process is gone; otherwise after `session`.",
    )
    before_first: Literal["wait", "serve"] = Field(
        "wait",
        description="With `group`, if no coordinator answers at the start: `wait` serves nobody, `serve` serves "
        "all brokers.",
    )
    when_cut_off: Literal["serve", "stop"] = Field(
        "serve",
        description="With `group`, once the coordinator has not answered for longer than `session`: `serve` goes "
        "on with the last owners, `stop` owns nothing until it answers again.",
    )
    fixed: Fixed | None = Field(
        None,
        validate_default=True,
        description='Instead of `group`: the brokers of each instance: `{edge-1: "0-2", edge-2: "3-5, 7"}`. For '
        "addresses that contain no `{instance}`, see [scaling.md](scaling.md#fixed-owners).",
    )

    @field_validator("secret_file")
    @classmethod
    def _with_its_group(cls, secret_file: Path | None, info: ValidationInfo) -> Path | None:
        if "group" in info.data and (secret_file is None) is not (info.data["group"] is None):
            said = "is missing, but group is set" if secret_file is None else "has no effect without group"
            raise InvalidValue(said, "write it into a file of its own: openssl rand -hex 32")
        return secret_file

    @field_validator("fixed")
    @classmethod
    def _group_or_fixed(cls, fixed: FixedOwners | None, info: ValidationInfo) -> FixedOwners | None:
        if "group" in info.data and (fixed is None) is (info.data["group"] is None):
            said = "is missing" if fixed is None else "cannot be combined with group"
            raise InvalidValue(said, "write either group (owners are elected) or fixed (you name them)")
        return fixed
