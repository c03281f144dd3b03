"""Client certificates: the user is the subject as Java writes it, or what the rules make of it; without one, nobody."""

import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.harness.certificates import common_name
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.secure import MTLS, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.identity import ANONYMOUS, EVERYBODY, produce, taken_for

pytestmark = pytest.mark.integration

MAPPED = "MAPPED"
REQUESTED = "REQUESTED"
RULES = r"RULE:^CN=([^,]+),OU=Accounts.*$/$1@accounts/L, RULE:^CN=(service-[0-9]+)$/$1/U"


def _name(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])


_TWO_VALUES = x509.Name(
    [
        x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example")]),
        x509.RelativeDistinguishedName(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "ops"),
            ]
        ),
    ]
)
# Expected: X500Principal.getName() of Java 17, as in the vectors (docs/security.md).
SUBJECTS = {
    "plain": (_name((NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "alice")), "CN=alice,C=DE"),
    "comma": (common_name("alice,CN=bob"), r"CN=alice\,CN\=bob"),
    "plus": (common_name("alice+OU=bob"), r"CN=alice\+OU\=bob"),
    "multi-valued": (_TWO_VALUES, "OU=ops+CN=alice,O=Example"),  # the shorter comes first in DER
    "unknown": (
        _name((NameOID.COMMON_NAME, "alice"), (NameOID.EMAIL_ADDRESS, "a@b.c")),
        "1.2.840.113549.1.9.1=#16056140622e63,CN=alice",
    ),
    "newline": (common_name("alice\nCN=bob"), "CN=alice\nCN\\=bob"),
}


@pytest.fixture(scope="module")
def guarded(secure_cluster: SecureCluster) -> Iterator[Guarded]:
    """Three listeners: a certificate is required; its subject is mapped by rules; it is requested."""
    given = secure_cluster.listeners()[MTLS]
    listeners = {
        MTLS: given,
        MAPPED: _with(given, principal_mapping_rules=RULES),
        REQUESTED: _with(given, client_authentication="requested"),
    }
    with guarded_sluice(secure_cluster.cluster, quotas=f"quotas:\n{EVERYBODY}", listeners=listeners) as running:
        yield running


@pytest.fixture(scope="module")
def topic(secure_cluster: SecureCluster) -> str:
    name = fresh_name("certified")
    secure_cluster.cluster.create_topic(name)
    return name


def _with(listener: dict[str, Any], **tls: str) -> dict[str, Any]:
    return {**listener, "tls": {**listener["tls"], **tls}}


@pytest.mark.parametrize("kind", SUBJECTS)
def test_certificate_user_is_the_subject_as_java_writes_it(
    secure_cluster: SecureCluster, guarded: Guarded, topic: str, kind: str
) -> None:
    subject, expected = SUBJECTS[kind]
    assert _seen_as(secure_cluster, guarded, topic, MTLS, subject) == {expected}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (_name((NameOID.ORGANIZATIONAL_UNIT_NAME, "Accounts"), (NameOID.COMMON_NAME, "Alice")), "alice@accounts"),
        (common_name("service-7"), "SERVICE-7"),
    ],
    ids=["first-rule", "second-rule"],
)
def test_subject_mapped_by_rules(
    secure_cluster: SecureCluster, guarded: Guarded, topic: str, subject: x509.Name, expected: str
) -> None:
    assert _seen_as(secure_cluster, guarded, topic, MAPPED, subject) == {expected}


def test_subject_that_no_rule_fits_is_refused(secure_cluster: SecureCluster, guarded: Guarded, topic: str) -> None:
    before = _rejected(guarded.sluice, "principal_mapping")
    with pytest.raises((ConnectionError, ssl.SSLError)):
        _seen_as(secure_cluster, guarded, topic, MAPPED, common_name("stranger"))
    assert _rejected(guarded.sluice, "principal_mapping") == before + 1


@pytest.mark.parametrize("listener", [MTLS, MAPPED])
def test_client_without_required_certificate_is_refused(
    secure_cluster: SecureCluster, guarded: Guarded, topic: str, listener: str
) -> None:
    before = _rejected(guarded.sluice, "client_certificate_missing")
    with pytest.raises((ConnectionError, ssl.SSLError)):
        _produce(secure_cluster.context(), guarded, topic, listener, "without")
    assert _rejected(guarded.sluice, "client_certificate_missing") == before + 1
    assert taken_for(guarded.sluice, "without") == set()


def test_client_without_requested_certificate_is_anonymous(
    secure_cluster: SecureCluster, guarded: Guarded, topic: str
) -> None:
    client_id = fresh_name("without")
    _produce(secure_cluster.context(), guarded, topic, REQUESTED, client_id)
    assert taken_for(guarded.sluice, client_id) == {ANONYMOUS}


@pytest.mark.parametrize("listener", [MTLS, REQUESTED])
def test_certificate_of_untrusted_authority_is_refused_wherever_shown(
    secure_cluster: SecureCluster, guarded: Guarded, topic: str, listener: str
) -> None:
    """Refused, also where none at all would do: a certificate that is shown has to be good."""
    before = _rejected(guarded.sluice, "client_certificate_invalid")
    context = secure_cluster.context(secure_cluster.stranger_authority.issue("alice", common_name("alice")))
    with pytest.raises((ConnectionError, ssl.SSLError)):
        _produce(context, guarded, topic, listener, "forged")
    assert _rejected(guarded.sluice, "client_certificate_invalid") == before + 1
    assert taken_for(guarded.sluice, "forged") == set()


def _seen_as(secure: SecureCluster, guarded: Guarded, topic: str, listener: str, subject: x509.Name) -> set[str]:
    client_id = fresh_name("certified")
    identity = secure.authority.issue(client_id, subject)
    _produce(secure.context(identity), guarded, topic, listener, client_id)
    return taken_for(guarded.sluice, client_id)


def _produce(context: ssl.SSLContext, guarded: Guarded, topic: str, listener: str, client_id: str) -> None:
    (address,) = guarded.sluice.listeners[listener].brokers.values()
    with Connection(Address(address.host, address.port), tls=context) as connection:
        produce(connection, topic, client_id)


def _rejected(sluice: SluiceProcess, cause: str) -> float:
    return sluice.metrics().value("sluice_frames_rejected_total", side="client", cause=cause)
