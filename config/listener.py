"""The ``listeners`` section: where clients connect, and how they are identified."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from config.brokers import BrokerPorts, BrokerRange, Endpoint, PortClaim, node_id_of
from config.cluster import Route
from config.forms import (
    Advertise,
    BindAddress,
    Brokers,
    Claim,
    Count,
    CountOrZero,
    FilePath,
    Flag,
    Given,
    HostTemplate,
    IpNetwork,
    Name,
    Section,
    Text,
    not_empty,
)
from config.problems import InvalidValue
from config.units import Address, AdvertisedAddress

_DEFAULT_RULES: Final = "DEFAULT"


class ClientTls(Section):
    """TLS to clients. Without this section, the listener is plaintext."""

    certificate: FilePath = Field(
        description="PEM chain presented to clients, the listener's own certificate first. It is reloaded when it "
        "changes.",
    )
    key: FilePath = Field(description="PEM key of `certificate`, not encrypted.")
    client_authentication: Literal["none", "requested", "required"] = Field(
        "none", description="Whether clients present a certificate, which then identifies the user: `ssl.client.auth`."
    )
    client_ca: FilePath | None = Field(
        None,
        validate_default=True,
        description="PEM file of the authorities that verify client certificates.",
    )
    principal_mapping_rules: Text = Field(
        _DEFAULT_RULES, description="Rules that map a certificate's subject to the user: `ssl.principal.mapping.rules`."
    )
    minimum_version: Literal["TLSv1.2", "TLSv1.3"] = Field("TLSv1.2", description="The oldest version offered.")
    ciphers: Text | None = Field(
        None, description="TLS 1.2 ciphers in OpenSSL's notation. Default: OpenSSL's secure defaults."
    )

    @field_validator("client_ca")
    @classmethod
    def _where_clients_show_one(cls, client_ca: Path | None, info: ValidationInfo) -> Path | None:
        wanted = info.data.get("client_authentication")
        if wanted in ("requested", "required") and client_ca is None:
            raise InvalidValue("is missing", f"client_authentication: {wanted} needs the authorities to verify by")
        if client_ca is not None:
            _require_client_certificates(info)
        return client_ca

    @field_validator("principal_mapping_rules")
    @classmethod
    def _of_certificates(cls, rules: str, info: ValidationInfo) -> str:
        if rules != _DEFAULT_RULES:
            _require_client_certificates(info)
        return rules

    @field_validator("ciphers")
    @classmethod
    def _of_tls_1_2(cls, ciphers: str | None, info: ValidationInfo) -> str | None:
        if ciphers is not None and info.data.get("minimum_version") == "TLSv1.3":
            raise InvalidValue("has no effect: only the ciphers of TLS 1.2 can be chosen", "leave it out")
        return ciphers


def _require_client_certificates(info: ValidationInfo) -> None:
    """Refuse settings about client certificates if clients do not present any."""
    if info.data.get("client_authentication") == "none":
        raise InvalidValue("has no effect: clients need no certificate", "write client_authentication: required")


class Kerberos(Section):
    """Reads the principal of GSSAPI clients. Requires the extra `kafka-sluice[gssapi]`."""

    keytab: FilePath = Field(
        description="Keys of the service principals that clients request: `kafka/` and the advertised hosts."
    )
    default_realm: Name = Field(description="The realm that the rule `DEFAULT` strips from principals.")
    principal_to_local_rules: Annotated[
        tuple[Text, ...],
        not_empty(f"write [{_DEFAULT_RULES}], or leave it out", "is empty: no client would have a name"),
    ] = Field(
        (_DEFAULT_RULES,),
        description="Rules that map a Kerberos principal to the user: `sasl.kerberos.principal.to.local.rules`.",
    )


class OAuth(Section):
    """The names of OAUTHBEARER users where brokers use Strimzi's validator, or another with more than `sub_claim`."""

    user_claim: Claim = Field(
        "sub",
        description="The claim that names the user: `oauth.username.claim`. A nested claim is written as in "
        "`['user.info'].['id']`.",
    )
    user_prefix: Text = Field("", description="A prefix for its value: `oauth.username.prefix`.")
    fallback_claim: Claim | None = Field(
        None,
        description="The claim that names the user if the token does not have the first: "
        "`oauth.fallback.username.claim`.",
    )
    fallback_prefix: Text = Field(
        "", description="A prefix for the fallback's value: `oauth.fallback.username.prefix`."
    )

    @field_validator("fallback_prefix")
    @classmethod
    def _of_a_fallback(cls, prefix: str, info: ValidationInfo) -> str:
        if prefix and info.data.get("fallback_claim") is None:
            raise InvalidValue("has no effect without fallback_claim", "write fallback_claim, or user_prefix")
        return prefix


class ListenerSasl(Section):
    """How the brokers behind this listener name SASL users."""

    sub_claim: Name = Field(
        "sub", description="The claim that names an OAUTHBEARER user: `sasl.oauthbearer.sub.claim.name`."
    )
    oauth: Given[OAuth] = None
    kerberos: Given[Kerberos] = None
    credentials_per_address: CountOrZero = Field(
        4,
        description="How many credentials per address have a counter of their own, for mechanisms that reveal a "
        "credential instead of a user ([security.md](security.md#pseudo-principals)). 0: none.",
    )

    @field_validator("oauth")
    @classmethod
    def _instead_of_sub_claim(cls, oauth: OAuth | None, info: ValidationInfo) -> OAuth | None:
        if oauth is not None and info.data.get("sub_claim", "sub") != "sub":
            raise InvalidValue("cannot be combined with sub_claim", "write the claim as oauth.user_claim alone")
        return oauth


class ProxyProtocol(Section):
    """Load balancers that send the client's address: PROXY protocol v1 or v2, before TLS. Elsewhere it is refused."""

    networks: Annotated[tuple[IpNetwork, ...], not_empty("write at least one network, as in 10.0.0.0/8")] = Field(
        description="The networks of these load balancers. The header is required from there and refused from "
        "elsewhere.",
    )


class ListenerLimits(Section):
    """Limits for this listener alone, in addition to the shared ones in `limits`."""

    connection_rate: Count | None = Field(
        None,
        description="The maximum number of connections accepted a second: `max.connection.creation.rate` of a "
        "listener. Default: no limit.",
    )
    exempt_from_connection_rate: Flag = Field(
        False,
        description="`limits.connection_rate` neither delays this listener nor counts what it accepts.",
    )
    connections: Count | None = Field(
        None,
        description="The most connections at once: `max.connections` of a listener. Default: no limit but "
        "`limits.connections`.",
    )


class Listener(Section):
    """Where clients connect: one bootstrap address, and a port or a host name for each broker."""

    name: Name = Field(description="The listener's name, in logs and metrics.")
    bind: BindAddress = Field(description="The address that the listener binds; clients use it as `bootstrap.servers`.")
    advertise: Advertise = Field(
        description="The host that clients are told for every broker, and their `bootstrap.servers`. It must lead "
        "to this proxy. The default port is that of `bind`. `{instance}` in it is `owners.instance`.",
    )
    tls: Given[ClientTls] = None
    brokers: Brokers | None = Field(
        None,
        description='Ranges of node ids and their ports: `{"0-9": "9100-9109", "42": "9142"}`. If clients reach '
        'them at other ports: `{"0-2": {bind: "9100-9102", advertise: "31100-31102"}}`.',
    )
    broker_host: HostTemplate | None = Field(
        None,
        validate_default=True,
        description="Instead of ports: the host name of each broker, as in `b{node_id}.kafka.example.com`, all on "
        "the port of `bind`. It requires `tls`. With `owners` it also names the instance: "
        "`b{node_id}-{instance}.kafka.example.com`.",
    )
    authentication: Literal["none", "sasl"] = Field(
        "none",
        description="`sasl` if the brokers behind it require SASL: clients must then log in first.",
    )
    sasl: ListenerSasl = ListenerSasl()
    limits: ListenerLimits = ListenerLimits()
    proxy_protocol: Given[ProxyProtocol] = None
    cluster: Given[Route] = None

    @field_validator("broker_host")
    @classmethod
    def _ports_or_hosts(cls, broker_host: str | None, info: ValidationInfo) -> str | None:
        if "brokers" in info.data and (info.data["brokers"] is None) == (broker_host is None):
            said = "is missing" if broker_host is None else "cannot be combined with brokers"
            raise InvalidValue(said, "write either brokers (a port for each) or broker_host (a host name for each)")
        if broker_host is not None:
            cls._require_names_in_tls(broker_host, info)
        return broker_host

    @classmethod
    def _require_names_in_tls(cls, broker_host: str, info: ValidationInfo) -> None:
        if "tls" in info.data and info.data["tls"] is None:
            raise InvalidValue("needs tls", "add the section tls: clients name the host in its handshake")
        if "advertise" not in info.data:
            return
        bootstrap = info.data["advertise"].host
        if bootstrap.endswith("."):
            raise InvalidValue(
                f"does not work with advertise: {bootstrap}: TLS omits the final dot", "write it without the dot"
            )
        if (node_id := node_id_of(bootstrap, broker_host)) is not None:
            raise InvalidValue(
                f"gives broker {node_id} the name in advertise: {bootstrap}",
                "write an advertise that does not match it",
            )

    @field_validator("brokers")
    @classmethod
    def _apart_from_bootstrap(cls, brokers: BrokerPorts | None, info: ValidationInfo) -> BrokerPorts | None:
        if brokers is None or "bind" not in info.data or "advertise" not in info.data:
            return brokers
        port = _bootstrap_of(info.data["bind"], info.data["advertise"]).port
        if port == info.data["bind"].port and any(port in each.bound for each in brokers.ranges):
            return brokers  # bound twice: reported together with the other listeners
        for each in brokers.ranges:
            if port in each.advertised:
                node_id = each.node_ids[port - each.advertised.start]
                raise InvalidValue(
                    f"port {port} belongs to broker {node_id} and to bootstrap.servers",
                    "give each its own: the port of bootstrap.servers is in advertise",
                )
        return brokers

    @property
    def bootstrap(self) -> Address:
        """The address for clients' `bootstrap.servers`."""
        return _bootstrap_of(self.bind, self.advertise)

    @property
    def endpoint(self) -> Endpoint:
        """The advertised addresses of all brokers."""
        return Endpoint(self.broker_host or self.advertise.host, self.bootstrap.port, self.brokers)

    @property
    def ranges(self) -> tuple[BrokerRange, ...]:
        """The ports of brokers; none if each has a host name."""
        return () if self.brokers is None else self.brokers.ranges

    def advertised(self, node_id: int) -> Address | None:
        """Return the advertised address of a broker; None if it has no port."""
        return self.endpoint.advertised(node_id)

    def bound(self, node_id: int) -> Address | None:
        """Return the local address of connections to the advertised address of a broker."""
        if self.broker_host is not None:
            return self.bind
        port = self.brokers.bound(node_id) if self.brokers is not None else None
        return None if port is None else Address(self.bind.host, port)

    def port_claims(self, index: int) -> Iterator[PortClaim]:
        """Yield every port that this listener binds; ``index`` is its place in the file."""
        yield PortClaim.of(self.bind, f"the bootstrap port of listener {self.name}", index, "bind")
        for each in self.ranges:
            yield PortClaim(self.bind.host, each.bound, f"the brokers of listener {self.name}", (index, "brokers"))


def _bootstrap_of(bind: Address, advertise: AdvertisedAddress) -> Address:
    return Address(advertise.host, bind.port if advertise.port is None else advertise.port)
