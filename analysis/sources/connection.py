"""How brokers are reached: Kafka's own client properties, for the JVM as they are, for aiokafka translated."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from analysis.errors import AnalysisError
from config.client_properties import parse_properties
from config.jaas import parse_jaas

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PEM: Final = "PEM"
_CLIENT_ID: Final = "sluice-analyze"
# Ours to say: the others are Spark's, which sets or refuses them.
_NOT_TAKEN: Final = ("bootstrap.servers", "group.id", "client.id", "isolation.level", "auto.offset.reset")


class Unsupported(AnalysisError):  # noqa: N818  it is what the properties are
    """What a JVM can do and Python cannot: another source, or another form of the same, helps."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Brokers and client properties. No value of a property is ever shown."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, bootstrap: str, path: Path | None) -> "Connection":
        """Read client properties from a file, if there is one. Raises AnalysisError."""
        if path is None:
            return cls(bootstrap)
        try:
            properties = parse_properties(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise AnalysisError(
                f"{path}: {str(error.strerror).lower()}; --kafka-config is a client.properties"
            ) from None
        except UnicodeDecodeError:
            raise AnalysisError(f"{path} is not UTF-8: --kafka-config is a client.properties") from None
        connection = cls(bootstrap, {key: value for key, value in properties.items() if key not in _NOT_TAKEN})
        if connection.protocol not in PROTOCOLS:
            raise AnalysisError(f"{path}: security.protocol is none of {', '.join(PROTOCOLS)}")
        return connection

    @property
    def protocol(self) -> str:
        """``security.protocol``."""
        return self.properties.get("security.protocol", "PLAINTEXT").upper()

    @property
    def has_tls(self) -> bool:
        """Whether it is by TLS."""
        return self.protocol.endswith("SSL")

    @property
    def mechanism(self) -> str | None:
        """``sasl.mechanism``, with Kafka's default; None where there is no login."""
        return self.properties.get("sasl.mechanism", "GSSAPI") if self.protocol.startswith("SASL") else None

    def for_spark(self) -> dict[str, str]:
        """Return the options of Spark's connector."""
        return {"kafka.bootstrap.servers": self.bootstrap} | {
            f"kafka.{key}": self.properties[key] for key in self.properties
        }

    def for_aiokafka(self) -> dict[str, Any]:
        """Return the arguments of an aiokafka client. Raises Unsupported, and AnalysisError for what is wrong."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "client_id": _CLIENT_ID,
            "security_protocol": self.protocol,
            "ssl_context": self.tls() if self.has_tls else None,
        }
        if self.mechanism is not None:
            options |= {"sasl_mechanism": self.mechanism, **self._login()}
        return options

    def tls(self) -> ssl.SSLContext:
        """Return what verifies brokers as a Java client with these properties would. Raises as ``for_aiokafka``."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.properties.get("ssl.endpoint.identification.algorithm", "https") != ""
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # Java trusts what stands in a truststore, root or not
        trusted = self._store("truststore")
        inline = self.properties.get("ssl.truststore.certificates")
        try:
            if trusted or inline:
                context.load_verify_locations(cafile=trusted, cadata=inline)
            else:
                context.load_default_certs()
        except OSError as error:
            raise AnalysisError(f"ssl.truststore: {_said(error, 'holds no certificate in PEM form')}") from None
        if (key_store := self._store("keystore")) is not None:
            try:
                context.load_cert_chain(key_store, password=self.properties.get("ssl.key.password", ""))
            except OSError as error:
                said = _said(error, "has no certificate with its key in PEM form, or ssl.key.password is wrong")
                raise AnalysisError(f"ssl.keystore.location: {said}") from None
        return context

    def _store(self, name: str) -> str | None:
        location = self.properties.get(f"ssl.{name}.location")
        kind = self.properties.get(f"ssl.{name}.type", "JKS").upper()
        if location is not None and kind != _PEM:
            raise Unsupported(
                f"ssl.{name}.type is {kind}, which only Java reads: write a PEM file, or take --source jvm"
            )
        if name == "keystore" and "ssl.keystore.key" in self.properties:
            raise Unsupported("ssl.keystore.key is in the file: name a PEM file in ssl.keystore.location instead")
        return location

    def _login(self) -> dict[str, str]:
        if self.mechanism not in BY_PASSWORD:
            raise Unsupported(
                f"sasl.mechanism {self.mechanism}: Python logs in by {', '.join(BY_PASSWORD)}; take --source jvm"
            )
        if "sasl.jaas.config" not in self.properties:
            raise AnalysisError("sasl.jaas.config is missing: write the login module and its options there")
        try:
            options = parse_jaas(self.properties["sasl.jaas.config"]).options
        except ValueError as error:
            raise AnalysisError(f"sasl.jaas.config {error}") from None
        for name in ("username", "password"):
            if not options.get(name):
                raise AnalysisError(f"sasl.jaas.config has no {name}")
        return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _said(error: OSError, otherwise: str) -> str:
    """Return why, in words: OpenSSL's are of its inside."""
    return otherwise if isinstance(error, ssl.SSLError) or error.strerror is None else error.strerror.lower()
