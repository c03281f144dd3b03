"""The ``cluster`` section: the brokers, and how the proxy connects to them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from config.forms import BrokerAddress, FilePath, Flag, Given, Name, Seconds, Section, not_empty
from config.problems import InvalidValue


class BrokerTls(Section):
    """TLS to the brokers. Without this section, connections to them are plaintext."""

    ca: FilePath | None = Field(
        None, description="PEM file of the authorities that verify brokers. Default: the system's."
    )
    verify_hostname: Flag = Field(
        True,
        description="Whether a broker's certificate must match its host name: `ssl.endpoint.identification.algorithm`.",
    )
    certificate: FilePath | None = Field(
        None, description="PEM chain that the proxy presents to brokers. To them, every client is its subject."
    )
    key: FilePath | None = Field(None, validate_default=True, description="PEM key of `certificate`, not encrypted.")

    @field_validator("key")
    @classmethod
    def _with_its_certificate(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        if "certificate" in info.data and (key is None) != (info.data["certificate"] is None):
            said = "is missing, but certificate is set" if key is None else "is set without certificate"
            raise InvalidValue(said, "write both or neither")
        return key


class BrokerSasl(Section):
    """The proxy's own login, for Metadata and the owners of delegation tokens. Clients log in themselves."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(description="As `sasl.mechanism`.")
    username: Name = Field(
        description="The proxy's own user. For delegation tokens it needs DESCRIBE on their owners, for "
        "`controller_mutation_rate` DESCRIBE on topics."
    )
    password_file: FilePath = Field(
        description="A file that contains only the password. A trailing newline is ignored."
    )


class Route(Section):
    """A different listener of the brokers than the one in `cluster`. It replaces all three settings of `cluster`."""

    bootstrap: Annotated[tuple[BrokerAddress, ...], not_empty("write at least one broker")] = Field(
        description="Brokers from which the others are discovered, as in `bootstrap.servers`."
    )
    tls: Given[BrokerTls] = None
    sasl: Given[BrokerSasl] = None


class Cluster(Route):
    """The Kafka cluster behind the proxy."""

    name: Name = Field(description="A name for the cluster, used in logs and metrics.")
    refresh_s: Seconds = Field(30.0, alias="refresh", description="How often the brokers' addresses are refreshed.")
    state: FilePath | None = Field(
        None,
        description="A file in which the brokers' addresses are kept for the next start. It matters where brokers "
        "require SASL and there is no `cluster.sasl` "
        "([operations.md](operations.md#a-restart-without-a-login)). [Temporary limits](page.md#act) are kept next to "
        "it.",
    )
    connect_timeout_s: Seconds = Field(
        10.0, alias="connect_timeout", description="How long connecting to a broker may take."
    )
