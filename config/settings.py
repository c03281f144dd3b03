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
    Network,
    parse_address,
    parse_advertised,
    parse_bytes,
    parse_duration_ms,
    parse_duration_s,
    parse_flag,
    parse_host_template,
    parse_name,
    parse_network,
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
Text = Annotated[str, Written("a text", str)]
HostTemplate = Annotated[str, Written("a host with {node_id}", parse_host_template)]
IpNetwork = Annotated[Network, Written("an IP network", parse_network)]
Brokers = Annotated[BrokerPorts, Written("node ids and ports", parse_broker_ports, takes=Mapping)]


class Section(BaseModel):
    """What all settings share: they never change, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


def _both(other: str, path: Path | None, info: ValidationInfo) -> Path | None:
    if (path is None) != (info.data.get(other) is None):
        raise InvalidValue("is missing" if path is None else f"stands without {other}", "give both or neither")
    return path


def _beside_the_configuration(path: Path | None, info: ValidationInfo) -> Path | None:
    folder: Path | None = info.context
    return folder / path if folder is not None and path is not None else path


class BrokerTls(Section):
    """TLS to the brokers; without the section connections to them are plaintext."""

    ca: FilePath | None = Field(
        None, description="PEM file of the authorities that brokers are verified by; without it, the system's."
    )
    verify_hostname: Flag = Field(
        True,
        description="Whether a broker's certificate must name the host it is connected by: "
        "`ssl.endpoint.identification.algorithm`. Its chain is verified in any case.",
    )
    certificate: FilePath | None = Field(
        None, description="PEM chain that the proxy shows to brokers: to them, every client is its subject."
    )
    key: FilePath | None = Field(None, description="PEM key of `certificate`, not encrypted.")

    _paths = field_validator("ca", "certificate", "key")(_beside_the_configuration)

    @field_validator("key")
    @classmethod
    def _with_its_certificate(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        return _both("certificate", key, info)


class BrokerSasl(Section):
    """The proxy's own login, for Metadata and the owners of delegation tokens. Clients log in by themselves."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(description="As `sasl.mechanism`.")
    username: Name = Field(description="The proxy's own user. For delegation tokens it needs DESCRIBE on their owners.")
    password_file: FilePath = Field(
        description="A file that holds the password alone; a line end behind it does not count."
    )

    _paths = field_validator("password_file")(_beside_the_configuration)


class Route(Section):
    """A listener of the brokers that is not the one in `cluster`: all three settings of `cluster` are replaced."""

    bootstrap: tuple[BrokerAddress, ...] = Field(
        description="Brokers to ask for the others, as in `bootstrap.servers`."
    )
    tls: BrokerTls | None = None
    sasl: BrokerSasl | None = None

    @field_validator("bootstrap")
    @classmethod
    def _at_least_one(cls, bootstrap: tuple[Address, ...]) -> tuple[Address, ...]:
        if not bootstrap:
            raise InvalidValue("is empty", "write at least one broker")
        return bootstrap


class Cluster(Route):
    """The Kafka cluster behind the proxy."""

    name: Name = Field(description="A name for the cluster; it stands in logs and metrics.")
    refresh_s: Seconds = Field(
        30.0, alias="refresh", description="How often the brokers' own addresses are asked for again."
    )
    connect_timeout_s: Seconds = Field(
        10.0, alias="connect_timeout", description="How long a connection to a broker may take to be made."
    )


class ClientTls(Section):
    """TLS to clients; without the section the listener is plaintext."""

    certificate: FilePath = Field(
        description="PEM chain that clients are shown, its own certificate first. Loaded again when it changes."
    )
    key: FilePath = Field(description="PEM key of `certificate`, not encrypted.")
    client_authentication: Literal["none", "requested", "required"] = Field(
        "none", description="Whether clients show a certificate, which then names the user: `ssl.client.auth`."
    )
    client_ca: FilePath | None = Field(
        None, description="PEM file of the authorities that client certificates are verified by."
    )
    principal_mapping_rules: Text = Field(
        "DEFAULT", description="From a certificate's subject to the user: `ssl.principal.mapping.rules`."
    )
    minimum_version: Literal["TLSv1.2", "TLSv1.3"] = Field("TLSv1.2", description="The oldest version offered.")
    ciphers: Text | None = Field(
        None, description="Ciphers of TLS 1.2 in OpenSSL's notation; without it, OpenSSL's secure defaults."
    )

    _paths = field_validator("certificate", "key", "client_ca")(_beside_the_configuration)

    @field_validator("client_ca")
    @classmethod
    def _where_clients_show_one(cls, client_ca: Path | None, info: ValidationInfo) -> Path | None:
        wanted = info.data.get("client_authentication", "none")
        if wanted != "none" and client_ca is None:
            raise InvalidValue("is missing", f"client_authentication: {wanted} needs the authorities to verify by")
        return client_ca


class Kerberos(Section):
    """Reading the principal of GSSAPI clients; needs the extra `kafka-sluice[gssapi]`."""

    keytab: FilePath = Field(
        description="Keys of the service principals that clients ask for: `kafka/` and the advertised hosts."
    )
    default_realm: Name = Field(description="The realm whose principals the rule `DEFAULT` shortens.")
    principal_to_local_rules: tuple[Text, ...] = Field(
        ("DEFAULT",), description="From a Kerberos principal to the user: `sasl.kerberos.principal.to.local.rules`."
    )

    _paths = field_validator("keytab")(_beside_the_configuration)


class ListenerSasl(Section):
    """How the brokers behind this listener name the users of SASL."""

    sub_claim: Name = Field(
        "sub", description="The claim that names the user of OAUTHBEARER: `sasl.oauthbearer.sub.claim.name`."
    )
    kerberos: Kerberos | None = None


class ProxyProtocol(Section):
    """Load balancers in front that say whom they forward, by the PROXY protocol, version 1 or 2, in front of TLS."""

    networks: tuple[IpNetwork, ...] = Field(
        description="Where these load balancers are. From there the header is required, from elsewhere refused."
    )

    @field_validator("networks")
    @classmethod
    def _at_least_one(cls, networks: tuple[Network, ...]) -> tuple[Network, ...]:
        if not networks:
            raise InvalidValue("is empty", "write at least one network, as in 10.0.0.0/8")
        return networks


class Listener(Section):
    """Where clients connect: one bootstrap address, and for each broker a port or a host name."""

    name: Name = Field(description="The listener's name, in logs and metrics.")
    bind: BindAddress = Field(description="The address that clients use as `bootstrap.servers`.")
    advertise: Host = Field(description="The host that clients are told for every broker: it must lead to this proxy.")
    brokers: Brokers | None = Field(
        None,
        description="Ranges of node ids and the ports that stand for them, of equal length: "
        '`{"0-9": "9100-9109", "42": "9142"}`. Bound on the host of `bind`.',
    )
    broker_host: HostTemplate | None = Field(
        None,
        description="Instead of ports: the host that stands for a broker, as in `b{node_id}.kafka.example.com`, on "
        "the one port of `bind`. Clients name it in TLS (SNI), so `tls` is needed and its certificate must fit.",
    )
    authentication: Literal["none", "sasl"] = Field(
        "none",
        description="`sasl` if the brokers behind it demand SASL: until a client is authenticated, its requests are "
        "held to `limits.request_before_authentication` and it has `limits.authentication_timeout`.",
    )
    tls: ClientTls | None = None
    sasl: ListenerSasl = ListenerSasl()
    proxy_protocol: ProxyProtocol | None = None
    cluster: Route | None = None

    @field_validator("broker_host")
    @classmethod
    def _ports_or_hosts(cls, broker_host: str | None, info: ValidationInfo) -> str | None:
        if "brokers" in info.data and (info.data["brokers"] is None) == (broker_host is None):
            said = "is missing" if broker_host is None else "stands beside brokers"
            raise InvalidValue(said, "write either brokers (a port for each) or broker_host (a host name for each)")
        return broker_host

    @field_validator("tls")
    @classmethod
    def _for_host_names(cls, tls: ClientTls | None, info: ValidationInfo) -> ClientTls | None:
        if tls is None and info.data.get("broker_host") is not None:
            raise InvalidValue("is missing", "broker_host needs it: clients name the host in their TLS handshake")
        return tls

    def port_claims(self, index: int) -> Iterator[PortClaim]:
        """Every port that this listener binds; ``index`` is its place in the file."""
        yield PortClaim.of(self.bind, f"the bootstrap port of listener {self.name}", index, "bind")
        for ports in self.brokers.ports() if self.brokers is not None else ():
            yield PortClaim(self.bind.host, ports, f"the brokers of listener {self.name}", (index, "brokers"))


class FileStore(Section):
    """Quotas in a YAML file, loaded again on SIGHUP and when it changes."""

    type: Literal["file"] = Field("file", description="The kind of store.")
    path: FilePath = Field(description="The file, relative to the configuration file. It must be there at the start.")

    _paths = field_validator("path")(_beside_the_configuration)


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
    authentication_timeout_s: Seconds = Field(
        30.0,
        alias="authentication_timeout",
        description="How long a client may take from its connection on until it is authenticated: for the PROXY "
        "protocol, TLS and, on listeners with `authentication: sasl`, SASL together.",
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
