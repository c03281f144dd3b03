"""Who logs in how, and whom the proxy takes a client for: seen in the metrics, by the client-id."""

from dataclasses import dataclass

from tests.harness.clients.kinds import (
    AIOKAFKA,
    CONFLUENT,
    JAVA_0,
    JAVA_1,
    JAVA_2,
    JAVA_4,
    KAFKA_PYTHON,
    SECURE_KINDS,
    ClientKind,
)
from tests.harness.clients.tasks import Security
from tests.harness.load import produce_request
from tests.harness.sasl import create_delegation_token, log_in_plain
from tests.harness.secure import MTLS, SASL, SASL_TLS, SIGNED, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection

ANONYMOUS = "ANONYMOUS"
TOKEN = "delegation token"
CERTIFICATE = "certificate"
# A pair of its own for everybody, so that a client's own client-id says whom it is taken for.
EVERYBODY = "  - {entity: {user: {default: true}, client-id: {default: true}}, producer_byte_rate: 1GB}\n"


@dataclass(frozen=True, slots=True)
class Login:
    """One client's way of logging in, at one listener, as a user of its own."""

    kind: ClientKind
    listener: str
    mechanism: str

    @property
    def name(self) -> str:
        words = f"{self.kind.name} {self.mechanism} {self.listener}"
        return "".join(letter if letter.isalnum() else "-" for letter in words.lower())

    @property
    def user(self) -> str:
        """Whom the proxy must take it for."""
        return f"CN={self.name}" if self.mechanism == CERTIFICATE else self.name

    def security(self, secure: SecureCluster) -> Security:
        """With the right password, token or certificate."""
        found = self._security(secure)
        return found.over_tls(str(secure.authority.certificate)) if self.listener == SASL_TLS else found

    def wrong_security(self, secure: SecureCluster) -> Security:
        """The same with a password of somebody else, or a token that a stranger has signed."""
        found = secure.by_password(self.mechanism, self.name, "not the password")
        if self.listener == SIGNED:
            found = secure.signed(secure.stranger.token(self.name))
        return found.over_tls(str(secure.authority.certificate)) if self.listener == SASL_TLS else found

    def _security(self, secure: SecureCluster) -> Security:
        if self.mechanism == CERTIFICATE:
            return secure.certificate(self.name)
        if self.mechanism == TOKEN:
            with Connection(Address.parse(secure.cluster.bootstrap_of(SASL))) as broker:
                log_in_plain(broker, self.name, secure.passwords[self.name])
                return secure.delegated(create_delegation_token(broker))
        if self.listener == SIGNED:
            return secure.signed(secure.issuer.token(self.name))
        if self.mechanism == "OAUTHBEARER":
            return secure.bearer(self.name)
        return secure.by_password(self.mechanism, self.name)


def logins_of(kind: ClientKind) -> list[Login]:
    """All that this client can do."""
    found = [Login(kind, SASL, mechanism) for mechanism in kind.mechanisms]
    found += [Login(kind, SASL_TLS, kind.mechanisms[0]), Login(kind, MTLS, CERTIFICATE)]
    found += [Login(kind, SIGNED, "OAUTHBEARER")] if kind.has_signed_tokens else []
    return found + ([Login(kind, SASL, TOKEN)] if kind.has_delegation_tokens else [])


ALL = tuple(login for kind in SECURE_KINDS for login in logins_of(kind))
"""What `make test-all` runs."""
SHORT = (
    Login(KAFKA_PYTHON, SASL, "SCRAM-SHA-256"),
    Login(KAFKA_PYTHON, SASL_TLS, "PLAIN"),
    Login(AIOKAFKA, SASL, "SCRAM-SHA-512"),
    Login(CONFLUENT, SASL, "OAUTHBEARER"),
    Login(CONFLUENT, MTLS, CERTIFICATE),
    Login(JAVA_0, SASL, "PLAIN"),
    Login(JAVA_1, SASL, TOKEN),
    Login(JAVA_2, SASL, "PLAIN"),
    Login(JAVA_4, SIGNED, "OAUTHBEARER"),
    Login(JAVA_4, SASL_TLS, "PLAIN"),
)
"""What `make test` runs: each mechanism, and each client."""
PEOPLE = ("alice", "bob", "carol", "dave")
TENANT = ("erin", "frank")
USERS = {name: f"password of {name}" for name in (*PEOPLE, *TENANT, *(login.name for login in ALL))}


def produce(connection: Connection, topic: str, client_id: str) -> bytes:
    """One record by hand; the answer."""
    return connection.exchange(produce_request(topic, client_id, 400))


def taken_for(sluice: SluiceProcess, client_id: str) -> set[str]:
    """Whom the requests with that client-id have been charged to."""
    samples = sluice.metrics().samples("sluice_quota_bytes_total", client_id=client_id)
    return {sample.labels["user"] for sample in samples if sample.value > 0}


def authentications(sluice: SluiceProcess, outcome: str, listener: str = SASL) -> float:
    return sluice.metrics().value("sluice_authentications_total", outcome=outcome, listener=listener)
