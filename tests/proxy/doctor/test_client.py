import json
import ssl
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest
import trustme

from proxy.doctor.client import ClientConfigError, ClientLogin, client_of, load_client

JAAS = "org.apache.kafka.common.security"
PLAIN = f'{JAAS}.plain.PlainLoginModule required username="alice" password="canary";'
SCRAM = f'{JAAS}.scram.ScramLoginModule required username="alice" password="canary";'
BEARER = f"{JAAS}.oauthbearer.OAuthBearerLoginModule required"
NOW_S = 1_700_000_000.0


def client(**properties: str) -> ClientLogin:
    return client_of({key.replace("__", "."): value for key, value in properties.items()}, NOW_S)


def test_client_without_properties_uses_plaintext() -> None:
    assert client() == ClientLogin("PLAINTEXT")


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("scram-sha-512", SCRAM)])
def test_plain_and_scram_logins_are_read_from_jaas_config(mechanism: str, jaas: str) -> None:
    found = client(security__protocol="sasl_plaintext", sasl__mechanism=mechanism, sasl__jaas__config=jaas)
    assert found.credentials is not None
    assert (found.credentials.mechanism, found.credentials.username) == (mechanism.upper(), "alice")
    assert found.credentials.secret == "canary"
    assert "canary" not in repr(found)
    found.credentials.exchange().auth_bytes()


def test_oauthbearer_token_is_read_from_endpoint_file(tmp_path: Path) -> None:
    token = tmp_path / "a token"
    token.write_text("x.y.z\n")
    found = client(
        security__protocol="SASL_PLAINTEXT",
        sasl__mechanism="OAUTHBEARER",
        sasl__jaas__config=f"{BEARER};",
        sasl__oauthbearer__token__endpoint__url=token.as_uri(),
    )
    assert found.credentials is not None
    assert found.credentials.username is None
    assert found.credentials.exchange().auth_bytes() == b"n,,\x01auth=Bearer x.y.z\x01\x01"


def test_oauthbearer_token_is_built_from_unsecured_claims() -> None:
    found = client(
        security__protocol="SASL_PLAINTEXT",
        sasl__mechanism="OAUTHBEARER",
        sasl__jaas__config=f'{BEARER} unsecuredLoginStringClaim_sub="alice";',
    )
    assert found.credentials is not None
    assert found.credentials.username == "alice"
    header, claims, signature = found.credentials.secret.split(".")
    assert signature == ""
    decoded = [json.loads(urlsafe_b64decode(part + "==")) for part in (header, claims)]
    assert decoded == [{"alg": "none"}, {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 3600}]


def test_ssl_properties_set_truststore_keystore_and_hostname_check(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = tmp_path / "own.pem"
    authority.issue_cert("alice").private_key_and_cert_chain_pem.write_to_path(own)
    trusted = {"ssl__truststore__type": "PEM", "ssl__truststore__location": str(tmp_path / "ca.pem")}
    shown = {"ssl__keystore__type": "PEM", "ssl__keystore__location": str(own)}
    found = client(security__protocol="SSL", **trusted, **shown, ssl__endpoint__identification__algorithm="")
    assert found.context is not None
    assert (found.context.check_hostname, found.context.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert len(found.context.get_ca_certs()) == 1
    assert found.unverified is not None
    assert found.unverified.verify_mode == ssl.CERT_NONE
    inline = client(security__protocol="SSL", ssl__truststore__certificates=(tmp_path / "ca.pem").read_text())
    assert inline.context is not None
    assert inline.context.check_hostname
    assert len(inline.context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security__protocol": "TLS"}, "security.protocol is none of PLAINTEXT, SSL"),
        ({"sasl__mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({"sasl__jaas__config": PLAIN}, "sasl.mechanism GSSAPI is not supported by the doctor"),
        ({"sasl__mechanism": "PLAIN", "sasl__jaas__config": SCRAM}, "is not of PlainLoginModule, which PLAIN needs"),
        ({"sasl__mechanism": "PLAIN", "sasl__jaas__config": PLAIN[:-1]}, "sasl.jaas.config does not end with one `;`"),
        ({"sasl__mechanism": "PLAIN", "sasl__jaas__config": PLAIN.replace("password", "pass")}, "has no password"),
        ({"sasl__mechanism": "PLAIN", "sasl__jaas__config": "${file:/secret:jaas}"}, "uses a config provider"),
        (
            {"sasl__mechanism": "SCRAM-SHA-256", "sasl__jaas__config": SCRAM.replace(";", ' tokenauth="true";')},
            "log in as a user, not by a delegation token",
        ),
        ({"sasl__mechanism": "OAUTHBEARER", "sasl__jaas__config": f"{BEARER};"}, "no token: write one into a file"),
        (
            {
                "sasl__mechanism": "OAUTHBEARER",
                "sasl__jaas__config": f"{BEARER};",
                "sasl__oauthbearer__token__endpoint__url": "https://issuer.example/token",
            },
            "no token: write one into a file, and name that as file:///",
        ),
        (
            {
                "sasl__mechanism": "OAUTHBEARER",
                "sasl__jaas__config": f"{BEARER};",
                "sasl__oauthbearer__token__endpoint__url": "file:///missing",
            },
            "no token: write one into a file",
        ),
        ({"security__protocol": "SSL", "ssl__truststore__location": "x.jks"}, "ssl.truststore.type is JKS"),
        ({"ssl__truststore__password": "canary"}, "ssl.truststore.password is not supported"),
        ({"ssl__keystore__key": "canary"}, "name that in ssl.keystore.location"),
        (
            {"security__protocol": "SSL", "ssl__truststore__type": "PEM", "ssl__truststore__location": "/missing"},
            "ssl.truststore: no such file",
        ),
        (
            {"security__protocol": "SSL", "ssl__truststore__certificates": "no PEM"},
            "ssl.truststore: holds no certificate in PEM form",
        ),
        (
            {"security__protocol": "SSL", "ssl__keystore__type": "PEM", "ssl__keystore__location": "/missing"},
            "ssl.keystore.location /missing: no such file",
        ),
    ],
)
def test_unusable_client_properties_are_refused_without_showing_secrets(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ClientConfigError) as refused:
        client(**{"security__protocol": "SASL_PLAINTEXT", **properties})
    assert said in str(refused.value)
    assert "canary" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_file_is_read_and_what_says_nothing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT\nbootstrap.servers=one:9092, two:9092\nacks=all\nsecurity.protocl=x\n")
    found = load_client(file, NOW_S)
    assert (found.bootstrap, found.ignored) == ("one:9092", ("acks", "security.protocl"))
    with pytest.raises(ClientConfigError, match="no such file"):
        load_client(tmp_path / "missing", NOW_S)
    file.write_bytes(b"\xff")
    with pytest.raises(ClientConfigError, match="is not UTF-8"):
        load_client(file, NOW_S)
