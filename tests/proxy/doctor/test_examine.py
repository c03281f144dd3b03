"""The command before nobody: of files and command lines. With a proxy: tests/integration/test_doctor.py."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.cli import cli

CONFIG = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:1"]}
listeners:
  - {name: ONE, bind: "127.0.0.1:1", advertise: 127.0.0.1, brokers: {"0-9": "9100-9109"}}
quotas: {store: {path: quotas.yaml}}
admin: {bind: "127.0.0.1:9404"}
"""
OTHER = '  - {name: TWO, bind: "127.0.0.1:2", advertise: 127.0.0.1, brokers: {"0-9": "9200-9209"}}\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIG)
    return file


def doctor(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["doctor", *map(str, arguments)])


def test_unreachable_proxy_fails_tcp_and_skips_later_checks(config: Path) -> None:
    done = doctor("-c", config)
    assert done.exit_code == 1
    statuses = [line.split()[:2] for line in done.output.splitlines()]
    assert statuses == [
        ["ok", "config"],
        ["FAIL", "tcp"],
        ["skip", "tls"],
        ["FAIL", "brokers"],
        *(["skip", check] for check in ("versions", "login", "whoami", "advertised")),
        ["Fix", "tcp"],
    ]
    assert "127.0.0.1:1 cannot be reached" in done.output
    assert done.output.count("not tried, because tcp failed") == 5
    assert done.output.splitlines()[-1].startswith("Fix tcp first: 127.0.0.1:1 cannot be reached: ")
    told = json.loads(doctor("-c", config, "--json").output)
    assert (told["ok"], told["first_failure"]) == (False, "tcp")


def test_a_configuration_that_is_wrong_is_all_that_is_said(config: Path) -> None:
    config.write_text(CONFIG.replace("demo", "no"))
    done = doctor("-c", config, "--json")
    assert done.exit_code == 1
    (finding,) = json.loads(done.output)["findings"]
    assert (finding["status"], finding["check"]) == ("FAIL", "config")
    assert finding["text"].startswith(f"{config}:1:17: cluster.name: ")
    assert finding["fix"]


def test_missing_configuration_file_fails_with_its_fix() -> None:
    done = doctor("-c", "missing.yaml")
    assert (done.exit_code, done.output.splitlines()) == (
        1,
        [
            "FAIL  config       missing.yaml: no such file: name the file with --config",
            "Fix config first: missing.yaml: no such file: name the file with --config",
        ],
    )


def test_a_quota_file_that_is_wrong_ends_nothing(config: Path) -> None:
    (config.parent / "quotas.yaml").write_text("quotas:\n  - {entity: {user: alice}, producer_byte_rate: -1}\n")
    done = doctor("-c", config)
    assert "FAIL  config       " in done.output
    assert "FAIL  brokers      " in done.output


def test_unusable_client_file_fails_client_check_with_fix(config: Path) -> None:
    client = config.parent / "client.properties"
    client.write_text("security.protocol=SASL_SSL\nssl.truststore.location=x.jks\nssl.truststore.password=canary\n")
    done = doctor("-c", config, "--command-config", client)
    assert done.exit_code == 1
    assert (
        "FAIL  client       ssl.truststore.password is not supported by the doctor: PEM files have none" in done.output
    )
    assert "canary" not in done.output
    assert done.output.count("not tried, because client failed") == 6
    assert "FAIL  brokers      " in done.output
    assert done.output.splitlines()[-1].startswith("Fix client first: ")
    client.write_text("acks=all\nbootstrap.servers=127.0.0.1:3,127.0.0.1:4\n")
    done = doctor("-c", config, "--command-config", client)
    assert "warn  client       ignored by the doctor: acks" in done.output
    assert "127.0.0.1:3 cannot be reached" in done.output
    client.write_text("bootstrap.servers=PLAINTEXT://h:9092\n")
    done = doctor("-c", config, "--command-config", client)
    said = "FAIL  client       bootstrap.servers: 'PLAINTEXT://h:9092' begins with a protocol: leave PLAINTEXT:// out"
    assert (done.exit_code, said in done.output) == (1, True)
    for away in (config.parent / "missing.properties", config.parent):
        done = doctor("-c", config, "--command-config", away)
        assert f"FAIL  client       {away} cannot be read (" in done.output
    assert "127.0.0.1:5 cannot be reached" in doctor("-c", config, "--bootstrap", "127.0.0.1:5,127.0.0.1:6").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "there are several listeners: give --listener with one of ONE, TWO"),
        (("--listener", "THREE"), "there is no listener THREE: give --listener with one of ONE, TWO"),
        (("--listener", "TWO", "--bootstrap", "here"), "--bootstrap 'here' has no port; write host:port"),
    ],
)
def test_wrong_doctor_command_line_exits_with_2(config: Path, arguments: tuple[str, ...], said: str) -> None:
    config.write_text(CONFIG.replace("quotas: {", OTHER + "quotas: {"))
    done = doctor("-c", config, *arguments)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
