"""`sluice doctor` before a real proxy with real brokers behind it: what is right, and everything that can be wrong."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.harness.secure import MTLS, NODE_IDS, SASL, SASL_TLS, SecureCluster
from tests.harness.sluice import SluiceProcess

pytestmark = pytest.mark.integration

USERS: Final = {"alice": "canary-alice"}
TIMEOUT_S: Final = 60
JAAS: Final = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureCluster]:
    with SecureCluster(USERS) as running:
        yield running


@pytest.fixture(scope="module")
def sluice(secure: SecureCluster) -> Iterator[SluiceProcess]:
    tls = secure.tls()
    mtls = {**tls, "client_authentication": "required", "client_ca": str(secure.authority.certificate)}
    listeners: dict[str, dict[str, Any]] = {
        "SASL": {"authentication": "sasl", "cluster": secure.route(SASL, guarded=False)},
        "SASL_TLS": {"authentication": "sasl", "tls": tls, "cluster": secure.route(SASL_TLS, guarded=False)},
        "MTLS": {"tls": mtls, "cluster": secure.route(MTLS, guarded=False)},
    }
    with SluiceProcess(secure.cluster.bootstrap, NODE_IDS, listeners=listeners) as running:
        yield running


class Doctor:
    """One run of the command."""

    def __init__(self, config: Path, listener: str, client: Mapping[str, str] | None, folder: Path) -> None:
        command = [str(Path(sys.executable).parent / "sluice"), "doctor", "-c", str(config), "--listener", listener]
        if client is not None:
            properties = folder / "client.properties"
            properties.write_text("".join(f"{key}={value}\n" for key, value in client.items()), encoding="utf-8")
            command += ["--command-config", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.stderr == ""
        assert "canary" not in done.stdout
        self.status = done.returncode
        self.text = done.stdout

    def lines(self, status: str) -> list[str]:
        return [line.split(maxsplit=1)[1] for line in self.text.splitlines() if line.split(maxsplit=1)[0] == status]

    def check(self, name: str) -> list[str]:
        return [line.split(maxsplit=2)[2] for line in self.text.splitlines() if line.split(maxsplit=2)[1] == name]


def login(mechanism: str, password: str = USERS["alice"]) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{JAAS}.{module} required username="alice" password="{password}";',
    }


def trusting(secure: SecureCluster) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(secure.authority.certificate)}


def changed(sluice: SluiceProcess, folder: Path, listener: str, **settings: Any) -> Path:
    """The proxy's configuration with other settings of a listener, as somebody has it who edited the file."""
    written = yaml.safe_load(sluice.config_path.read_text())
    for each in written["listeners"]:
        if each["name"] == listener:
            each.update(settings)
    written["quotas"]["store"]["path"] = str(sluice.quotas_path)
    file = folder / "sluice.yaml"
    file.write_text(yaml.safe_dump(written))
    return file


def test_doctor_on_plain_listener_finds_no_fault(sluice: SluiceProcess, tmp_path: Path) -> None:
    run = Doctor(sluice.config_path, "PLAIN", None, tmp_path)
    assert (run.status, run.lines("FAIL"), run.lines("warn"), run.lines("skip")) == (0, [], [], []), run.text
    assert run.check("whoami") == ["user ANONYMOUS on listener PLAIN"]
    assert run.check("advertised") == [f"broker 7 at {sluice.broker_addresses[7]} answers"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_doctor_names_user_of_sasl_login(sluice: SluiceProcess, tmp_path: Path, mechanism: str) -> None:
    run = Doctor(sluice.config_path, "SASL", login(mechanism), tmp_path)
    assert (run.status, run.lines("FAIL"), run.lines("warn")) == (0, [], []), run.text
    assert run.check("login") == [f"user alice by {mechanism}"]
    assert run.check("whoami") == ["user alice on listener SASL"]


def test_doctor_names_user_of_oauthbearer_token(sluice: SluiceProcess, tmp_path: Path) -> None:
    bearer = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": (
            f'{JAAS}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
        ),
    }
    run = Doctor(sluice.config_path, "SASL", bearer, tmp_path)
    assert (run.status, run.check("whoami")) == (0, ["user alice on listener SASL"]), run.text


def test_doctor_with_wrong_password_names_the_refused_login(sluice: SluiceProcess, tmp_path: Path) -> None:
    run = Doctor(sluice.config_path, "SASL", login("SCRAM-SHA-512", "wrong-canary"), tmp_path)
    assert run.status == 1
    (failure,) = run.lines("FAIL")
    assert "refused the login of user alice by SCRAM-SHA-512" in failure
    assert failure.endswith("compare sasl.jaas.config with the brokers' users")
    assert [line.split()[0] for line in run.lines("skip")] == ["whoami", "advertised"]


def test_doctor_on_sasl_ssl_checks_tls_certificate_and_login(
    secure: SecureCluster, sluice: SluiceProcess, tmp_path: Path
) -> None:
    client = {**login("SCRAM-SHA-512"), "security.protocol": "SASL_SSL", **trusting(secure)}
    run = Doctor(sluice.config_path, "SASL_TLS", client, tmp_path)
    assert (run.status, run.lines("FAIL")) == (0, []), run.text
    assert run.check("whoami") == ["user alice on listener SASL_TLS"]
    assert run.check("tls")[0].startswith("TLSv1.3, ")
    assert "CN=broker, issued by CN=Sluice test authority, expires on" in run.check("certificate")[0]
    assert "verified for 127.0.0.1" in run.check("certificate")


def test_doctor_names_user_of_client_certificate(secure: SecureCluster, sluice: SluiceProcess, tmp_path: Path) -> None:
    shown = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secure.proxy.both)}
    run = Doctor(sluice.config_path, "MTLS", {"security.protocol": "SSL", **trusting(secure), **shown}, tmp_path)
    assert (run.status, run.check("whoami")) == (0, ["user CN=proxy on listener MTLS"]), run.text
    without = Doctor(sluice.config_path, "MTLS", {"security.protocol": "SSL", **trusting(secure)}, tmp_path)
    assert without.status == 1
    assert any("ssl.keystore.location" in line or "client certificate" in line for line in without.lines("FAIL"))


@pytest.mark.parametrize(
    ("listener", "client", "said", "fix"),
    [
        ("SASL_TLS", {"security.protocol": "PLAINTEXT"}, "speaks TLS, and", "set security.protocol to SSL or SASL_SSL"),
        ("SASL", {"security.protocol": "SSL"}, "speaks plaintext, and", "set security.protocol to PLAINTEXT"),
        ("SASL", {"security.protocol": "PLAINTEXT"}, "demands SASL, and", "with sasl.mechanism and sasl.jaas.config"),
        ("SASL_TLS", {"security.protocol": "SSL"}, "not accepted for 127.0.0.1", "ssl.truststore.location"),
        ("PLAIN", login("PLAIN"), "does not use SASL on this listener", "compare"),
    ],
)
def test_doctor_names_setting_that_does_not_fit_the_listener(
    sluice: SluiceProcess, tmp_path: Path, listener: str, client: dict[str, str], said: str, fix: str
) -> None:
    run = Doctor(sluice.config_path, listener, client, tmp_path)
    assert run.status == 1
    (failure,) = run.lines("FAIL")
    assert said in failure
    assert fix in failure


def test_doctor_names_brokers_advertised_past_the_proxy(sluice: SluiceProcess, tmp_path: Path) -> None:
    ports = {"7": str(sluice.broker_addresses[7].port + 1)}
    run = Doctor(changed(sluice, tmp_path, "PLAIN", brokers=ports), "PLAIN", None, tmp_path)
    assert any(
        f"broker 7 is advertised as {sluice.broker_addresses[7]} instead of" in line for line in run.lines("FAIL")
    )
    run = Doctor(changed(sluice, tmp_path, "PLAIN", brokers={"1": "9999"}), "PLAIN", None, tmp_path)
    assert "broker 7 has no port, clients cannot reach it: add the node id to brokers" in run.text
    assert run.status == 1


def test_doctor_asks_whether_an_unreachable_proxy_runs(sluice: SluiceProcess, tmp_path: Path) -> None:
    run = Doctor(changed(sluice, tmp_path, "PLAIN", bind="127.0.0.1:1"), "PLAIN", None, tmp_path)
    assert run.status == 1
    assert "127.0.0.1:1 cannot be reached" in run.lines("FAIL")[0]
    assert "is the proxy running" in run.lines("FAIL")[0]
    assert run.check("brokers")


def test_doctor_names_brokers_refusal_of_the_proxy_login(
    secure: SecureCluster, sluice: SluiceProcess, tmp_path: Path
) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("canary")
    route = secure.route(SASL, guarded=False)
    route["sasl"] = {**route["sasl"], "password_file": str(wrong)}
    run = Doctor(changed(sluice, tmp_path, "SASL", cluster=route), "SASL", login("PLAIN"), tmp_path)
    assert any("refused the login of user proxy by SCRAM-SHA-512" in line for line in run.lines("FAIL"))
    del route["sasl"]
    run = Doctor(changed(sluice, tmp_path, "SASL", cluster=route), "SASL", login("PLAIN"), tmp_path)
    assert (run.status, len(run.lines("warn"))) == (0, 1), run.text
    assert "set cluster.sasl" in run.lines("warn")[0]


def test_doctor_json_reports_findings_for_programs(sluice: SluiceProcess) -> None:
    command = [str(Path(sys.executable).parent / "sluice"), "doctor", "-c", str(sluice.config_path)]
    done = subprocess.run(
        [*command, "--listener", "PLAIN", "--json"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert {finding["status"] for finding in told["findings"]} == {"ok"}
    wrong = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert wrong.returncode == 2
    assert "give --listener with one of PLAIN, SASL, SASL_TLS, MTLS" in wrong.stderr
