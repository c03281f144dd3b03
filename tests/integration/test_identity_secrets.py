"""Everything at debug level, with secrets that are known: none of them is to be found in anything the proxy says.

A secret is looked for as it is, in base64 (as PLAIN and SCRAM send it, wherever in a token it begins) and in hex.
"""

import base64
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness import sasl
from tests.harness.certificates import common_name
from tests.harness.clients.kinds import CONFLUENT, KAFKA_PYTHON, ClientKind
from tests.harness.clients.tasks import Produce, Security
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.secure import MTLS, PROXY_USER, REAUTH, SASL, SASL_TLS, SIGNED, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.tokens import forged, unsecured_token
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.identity import EVERYBODY, produce

pytestmark = pytest.mark.integration

LEAST_BYTES = 12  # of a secret: anything shorter may well be somewhere by chance
WRONG_PASSWORD = "canary: the wrong password"
DEBUG = {"log": {"level": "debug", "format": "json"}}


class Scene:
    """The proxy at work, and the secrets that have gone through it or lie before it."""

    def __init__(self, secure: SecureCluster, guarded: Guarded) -> None:
        self.secure = secure
        self.sluice: SluiceProcess = guarded.sluice
        self.secrets = {"the proxy's own password": secure.passwords[PROXY_USER], "a wrong password": WRONG_PASSWORD}
        self.topic = fresh_name("secret")
        secure.cluster.create_topic(self.topic)
        for name, file in (("server", secure.server.key), ("proxy", secure.proxy.key)):
            self._add_lines(f"the key of the {name}", file)

    def password(self, user: str) -> str:
        self.secrets[f"the password of {user}"] = self.secure.passwords[user]
        return self.secure.passwords[user]

    def token(self, text: str) -> str:
        """Each part is a secret that is none without the others; the signature is the one that matters."""
        for number, part in enumerate(text.split(".")):
            if len(part) >= LEAST_BYTES:
                self.secrets[f"part {number} of token {len(self.secrets)}"] = part
        return text

    def address(self, listener: str) -> Address:
        return self.sluice.listeners[listener].address

    def run(self, kind: ClientKind, listener: str, security: Security) -> None:
        task = Produce(
            bootstrap=self.sluice.listeners[listener].bootstrap,
            client_id="canary",
            topic=self.topic,
            records=3,
            security=security,
        )
        with kind.run(task) as client:
            assert client.result().records == 3

    def _add_lines(self, name: str, file: Path) -> None:
        for number, line in enumerate(file.read_text(encoding="ascii").splitlines()):
            if not line.startswith("-"):
                self.secrets[f"line {number} of {name}"] = line


@pytest.fixture(scope="module")
def scene(secure_cluster: SecureCluster) -> Iterator[Scene]:
    listeners = secure_cluster.listeners()
    cluster = secure_cluster.cluster
    with guarded_sluice(cluster, quotas=f"quotas:\n{EVERYBODY}", settings=DEBUG, listeners=listeners) as guarded:
        found = Scene(secure_cluster, guarded)
        _log_in(found)
        _fail_to(found)
        _send_garbage(found)
        yield found


def test_secrets_would_be_found_in_plain_base64_and_hex(scene: Scene) -> None:
    """All of it has come to the proxy, it logs at debug level, and a secret would be found in each of its forms."""
    metrics = scene.sluice.metrics()
    assert metrics.value("sluice_authentications_total", outcome="succeeded") >= 6
    assert metrics.value("sluice_authentications_total", outcome="failed") >= 4
    assert any(line["level"] == "debug" for line in scene.sluice.logs())
    assert len(scene.secrets) > 15
    secret = "canary secret"
    for prefix in ("", "a", "ab"):
        hidden = base64.b64encode(f"{prefix}{secret}\0behind".encode()).decode()
        assert _found_in(hidden, {"it": secret}) == ["it"]
    assert _found_in(secret.encode().hex(" "), {"it": secret}) == ["it"]
    assert _found_in("canary, secret", {"it": secret}) == []


def test_log_at_debug_level_contains_no_secret(scene: Scene) -> None:
    """The log is all that the process writes: both its streams go there."""
    assert _found_in(scene.sluice.output(), scene.secrets) == []


@pytest.mark.parametrize(
    "page", ["/metrics", "/readyz", "/livez", "/api/v1/connections", "/api/v1/explain?peer=127.0.0.1:1"]
)
def test_admin_page_contains_no_secret(scene: Scene, page: str) -> None:
    _, text = scene.sluice.get(page)
    assert _found_in(text, scene.secrets) == []


def test_configuration_error_quotes_no_secret(scene: Scene) -> None:
    """A key where a certificate belongs, a password where its file does: who complains of it does not quote it."""
    configuration = scene.sluice.config_path.read_text(encoding="utf-8")
    password_file = f"password_file: {scene.secure.folder / 'proxy.password'}"
    for right, wrong in (
        (str(scene.secure.server.certificate), str(scene.secure.server.key)),
        (password_file, f"password: '{scene.secure.passwords[PROXY_USER]}'"),
    ):
        assert right in configuration
        file = scene.sluice.config_path.with_name("wrong.yaml")
        file.write_text(configuration.replace(right, wrong), encoding="utf-8")
        said = scene.sluice.command("check", file.name)
        assert f"{file}:" in said
        assert _found_in(said, scene.secrets) == []


def _log_in(scene: Scene) -> None:
    """By every mechanism: by hand, and as clients do."""
    secure = scene.secure
    with Connection(scene.address(SASL)) as connection:
        sasl.log_in_plain(connection, "alice", scene.password("alice"))
        token = sasl.create_delegation_token(connection)
        scene.secrets["the secret of a delegation token"] = token.secret
    with Connection(scene.address(SASL)) as connection:
        sasl.log_in_scram(connection, "bob", scene.password("bob"))
        produce(connection, scene.topic, "canary")
    with Connection(scene.address(SASL)) as connection:
        sasl.Scram(token.token_id, token.secret, "tokenauth=true").log_in(connection)
    with Connection(scene.address(SIGNED)) as connection:
        sasl.log_in_bearer(connection, scene.token(secure.issuer.token("carol")))
    with Connection(scene.address(SASL)) as connection:
        sasl.log_in_bearer(connection, scene.token(unsecured_token("dave")))
    with Connection(scene.address(SASL)) as connection:
        sasl.handshake(connection, "PLAIN", version=0)
        connection.exchange(sasl.raw_token(sasl.plain_token("alice", scene.password("alice"))))
    with Connection(scene.address(REAUTH)) as connection:
        sasl.log_in_plain(connection, "dave", scene.password("dave"))
    within_tls = secure.by_password("PLAIN", "carol", scene.password("carol")).over_tls(
        str(secure.authority.certificate)
    )
    scene.run(KAFKA_PYTHON, SASL_TLS, within_tls)
    scene.run(CONFLUENT, MTLS, secure.certificate("canary"))


def _fail_to(scene: Scene) -> None:
    """The same with what is wrong."""
    with Connection(scene.address(SASL)) as connection:
        sasl.log_in_plain(connection, "alice", WRONG_PASSWORD)
    with Connection(scene.address(SASL)) as connection:
        sasl.log_in_scram(connection, "alice", WRONG_PASSWORD)
    with Connection(scene.address(SIGNED)) as connection:
        sasl.log_in_bearer(connection, scene.token(forged(scene.secure.issuer.token("bob"), "alice")))
        sasl.authenticate(connection, b"\x01")
    with Connection(scene.address(SASL)) as connection:
        sasl.handshake(connection, "PLAIN", version=0)
        connection.send(sasl.raw_token(sasl.plain_token("alice", WRONG_PASSWORD)))
        connection.rest()
    with Connection(scene.address(SASL)) as connection:
        sasl.handshake(connection, "NO-SUCH-MECHANISM")
        connection.rest()


def _send_garbage(scene: Scene) -> None:
    """Secrets where they do not belong: in broken frames, on a port of the wrong kind, in a handshake that fails."""
    secret = sasl.plain_token("alice", scene.password("alice"))
    plain, within_tls = scene.address(SASL), scene.address(SASL_TLS)
    for address, garbage in (
        (plain, secret),
        (plain, sasl.raw_token(secret)),
        (plain, sasl.handshake_request("PLAIN")[:-2] + secret),
        (plain, sasl.authenticate_request(secret)[: -4 - len(secret)] + b"\x7f\xff\xff\xff" + secret),
        (within_tls, secret),
        (within_tls, sasl.authenticate_request(secret)),
        (scene.address(MTLS), secret),
    ):
        with Connection(address) as connection, suppress(OSError):
            connection.send(garbage)
            connection.finish()
            connection.rest()
    stranger = scene.secure.stranger_authority.issue("stranger", common_name("stranger"))
    for context in (scene.secure.context(), scene.secure.context(stranger)):
        with suppress(ssl.SSLError, OSError), Connection(scene.address(MTLS), tls=context) as connection:
            connection.send(sasl.authenticate_request(secret))
            connection.rest()


def _found_in(text: str, secrets: dict[str, str]) -> list[str]:
    """The names of the secrets that the text shows in one of their forms."""
    lowered = text.lower().replace(" ", "").replace(":", "").replace("\\x", "")
    return sorted(
        name
        for name, secret in secrets.items()
        if secret in text
        or secret.encode().hex() in lowered
        or any(form in text for form in _base64_forms(secret.encode()))
    )


def _base64_forms(secret: bytes) -> list[str]:
    """As it stands in a longer text that is encoded: what the neighbours have a part in is left out at both ends."""
    forms = []
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + secret).decode().rstrip("=")
        first = (0, 2, 3)[offset]
        forms.append(encoded[first : len(encoded) - 1 if (offset + len(secret)) % 3 else len(encoded)])
    return forms
