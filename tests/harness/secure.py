"""A cluster with a listener for each way of logging in, and the users who may.

with SecureCluster() as secure:
    ... secure.cluster.bootstrap_of("SASL") ... secure.by_password("PLAIN", "alice") ...

A broker takes seconds, a listener none: one cluster has them all, named for what they ask of a client.
"""

import shutil
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from tests.harness.broker import BrokerListener
from tests.harness.certificates import SERVER_HOSTS, STORE_PASSWORD, Authority, Identity, common_name
from tests.harness.clients.tasks import Security
from tests.harness.kafka import KafkaCluster
from tests.harness.sasl import DelegationToken
from tests.harness.tokens import AUDIENCE, ISSUER, Issuer

SASL: Final = "SASL"
"""Every mechanism; tokens of OAUTHBEARER are taken on trust."""
SASL_TLS: Final = "SASL_TLS"
REAUTH: Final = "REAUTH"
"""As SASL, but a login holds ten seconds (KIP-368)."""
SIGNED: Final = "SIGNED"
"""OAUTHBEARER with tokens that `SecureCluster.issuer` has signed, and SCRAM for the proxy itself."""
MTLS: Final = "MTLS"
"""A client certificate, and no SASL."""
REAUTH_MS: Final = 10_000
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")
PROXY_USER: Final = "proxy"
NODE_IDS: Final = (7,)
_PACKAGE: Final = "org.apache.kafka.common.security"


class SecureCluster:
    """One node with these listeners, as a context manager.

    `users` are its names and passwords, of PLAIN and of SCRAM alike; the proxy has a login of its own beside them.
    What `issuer` and `authority` have signed is believed, what the two strangers have is not.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-secure-"))
        self.passwords = {**users, PROXY_USER: "the password of the proxy itself"}
        self.authority = Authority(self.folder / "certificates")
        self.server = self.authority.issue("broker", common_name("broker"), SERVER_HOSTS)
        self.proxy = self.authority.issue("proxy", common_name("proxy"), SERVER_HOSTS)
        self.issuer = Issuer()
        self.stranger = Issuer()
        self.stranger_authority = Authority(self.folder / "stranger", "Another authority")
        self._password_file = self.folder / "proxy.password"
        self._password_file.write_text(self.passwords[PROXY_USER] + "\n", encoding="utf-8")
        self._password_file.chmod(0o600)
        keys = self.folder / "jwks.json"
        self.issuer.write_jwks(keys)
        self.cluster = KafkaCluster(
            node_ids=NODE_IDS,
            listeners=self._listeners(keys),
            scram=[f"{kind}=[name={name},password={said}]" for name, said in self.passwords.items() for kind in SCRAM],
            properties={"delegation.token.secret.key": "any secret will do"},
            java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"],
        )

    def by_password(self, mechanism: str, user: str, password: str | None = None) -> Security:
        """How a client logs in by PLAIN or SCRAM: with its own password where none is given."""
        said = self.passwords[user] if password is None else password
        return Security(protocol="SASL_PLAINTEXT", mechanism=mechanism, username=user, password=said)

    def bearer(self, user: str) -> Security:
        """An unsecured token, which the client makes."""
        return Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", username=user)

    def signed(self, token: str) -> Security:
        return Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=token)

    def delegated(self, token: DelegationToken) -> Security:
        found = Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-512", is_delegation_token=True)
        return replace(found, username=token.token_id, password=token.secret)

    def certificate(self, user: str) -> Security:
        """Of a client that shows a certificate of CN=user."""
        identity = self.authority.issue(user, common_name(user))
        ca, certificate, key = map(str, (self.authority.certificate, identity.certificate, identity.key))
        return Security(protocol="SSL", ca=ca, certificate=certificate, key=key)

    def context(self, identity: Identity | None = None) -> ssl.SSLContext:
        """The same for a connection by hand."""
        found = ssl.create_default_context(cafile=str(self.authority.certificate))
        if identity is not None:
            found.load_cert_chain(identity.certificate, identity.key)
        return found

    def listeners(self) -> dict[str, dict[str, Any]]:
        """Those of a proxy that stands in front of each listener of the brokers, under the same names."""
        sasl = {name: {"authentication": "sasl", "cluster": self.route(name)} for name in (SASL, REAUTH, SIGNED)}
        within_tls = {"authentication": "sasl", "tls": self.tls(), "cluster": self.route(SASL_TLS)}
        required = {"client_authentication": "required", "client_ca": str(self.authority.certificate)}
        return {**sasl, SASL_TLS: within_tls, MTLS: {"tls": self.tls() | required, "cluster": self.route(MTLS)}}

    def tls(self) -> dict[str, Any]:
        """The section `tls` of a listener of the proxy."""
        return {"certificate": str(self.server.certificate), "key": str(self.server.key)}

    def route(self, listener: str, *, guarded: bool = True) -> dict[str, Any]:
        """The section `cluster` of a listener of the proxy that leads to that listener of the brokers."""
        found: dict[str, Any] = {"bootstrap": self.cluster.bootstrap_of(listener, guarded=guarded).split(",")}
        if listener in {SASL_TLS, MTLS}:
            found["tls"] = {"ca": str(self.authority.certificate)}
        if listener == MTLS:
            found["tls"] |= {"certificate": str(self.proxy.certificate), "key": str(self.proxy.key)}
        else:
            login = {"mechanism": "SCRAM-SHA-512", "username": PROXY_USER, "password_file": str(self._password_file)}
            found["sasl"] = login
        return found

    def _listeners(self, keys: Path) -> list[BrokerListener]:
        every = self._mechanisms()
        tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server.both),
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.authority.store),
            "ssl.truststore.password": STORE_PASSWORD,
        }
        return [
            BrokerListener(SASL, "SASL_PLAINTEXT", every),
            BrokerListener(SASL_TLS, "SASL_SSL", {**every, **tls}),
            BrokerListener(REAUTH, "SASL_PLAINTEXT", {**every, "connections.max.reauth.ms": str(REAUTH_MS)}),
            BrokerListener(SIGNED, "SASL_PLAINTEXT", {**every, **_validated(keys)}),
            BrokerListener(MTLS, "SSL", {**tls, "ssl.client.auth": "required"}),
        ]

    def _mechanisms(self) -> dict[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in self.passwords.items())
        bearer = "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=broker"
        return {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "plain.sasl.jaas.config": f"{_PACKAGE}.plain.PlainLoginModule required {users};",
            **{f"{each.lower()}.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;" for each in SCRAM},
            "oauthbearer.sasl.jaas.config": f"{_PACKAGE}.{bearer};",
        }

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _validated(keys: Path) -> dict[str, str]:
    return {
        "oauthbearer.sasl.server.callback.handler.class": f"{_PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
