from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.sources.connection import Connection, Unsupported

SCRAM = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="alice" password="s=3;cret";
group.id=mine
"""


def load(tmp_path: Path, text: str) -> Connection:
    path = tmp_path / "client.properties"
    path.write_text(text, encoding="utf-8")
    return Connection.load("b:9092", path)


def test_without_a_file_it_is_plaintext() -> None:
    connection = Connection.load("b:9092", None)
    assert connection.for_spark() == {"kafka.bootstrap.servers": "b:9092"}
    assert connection.for_aiokafka() == {
        "bootstrap_servers": "b:9092",
        "client_id": "sluice-analyze",
        "security_protocol": "PLAINTEXT",
        "ssl_context": None,
    }


def test_a_login_for_both_readers(tmp_path: Path) -> None:
    connection = load(tmp_path, SCRAM)
    spark = connection.for_spark()
    assert spark["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert "kafka.group.id" not in spark
    options = connection.for_aiokafka()
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("alice", "s=3;cret")
    assert "s=3;cret" not in repr(connection)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS", "security.protocol is none of"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "sasl.jaas.config is missing"),
        (SCRAM.replace("username", "user"), "sasl.jaas.config has no username"),
        (SCRAM.replace('";', '"'), "sasl.jaas.config does not end"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/nowhere", "ssl.truststore: no such"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        load(tmp_path, text).for_aiokafka()


@pytest.mark.parametrize(
    "text",
    [
        "security.protocol=SASL_PLAINTEXT",  # GSSAPI
        "security.protocol=SSL\nssl.truststore.location=trust.jks",
        "security.protocol=SSL\nssl.keystore.key=inline",
    ],
)
def test_what_only_java_can_do(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unsupported):
        load(tmp_path, text).for_aiokafka()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"nowhere: no such file or directory; --kafka-config"):
        Connection.load("b:9092", tmp_path / "nowhere")
    (tmp_path / "latin").write_bytes(b"a=\xe4")
    with pytest.raises(AnalysisError, match="is not UTF-8"):
        Connection.load("b:9092", tmp_path / "latin")
