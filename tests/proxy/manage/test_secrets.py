"""No secret of a command line or of a file is quoted by what is said of it."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from config.client_properties import parse_jaas
from config.problems import InvalidValue
from proxy.cli import cli
from proxy.manage.grammar import read

SECRET = "hunter2"
FLAGS = [
    "SCRAM-SHA-512=[password=hunter2]",
    "SCRAM-SHA-512=[iterations=8192,password=hunter2]",
    "SCRAM-SHA-256=password=hunter2",
    "producer_byte_rate=1MiB,SCRAM-SHA-512=[password=a,hunter2",
    "SCRAM-SHA-512=[password=a],hunter2",
    "password=hunter2",
    "sasl.jaas.config=org.apache.PlainLoginModule required password=hunter2;",
    "ssl.key.password=hunter2",
]


@pytest.mark.parametrize("value", FLAGS)
def test_secret_in_add_config_flag_is_not_shown(value: str) -> None:
    for words in ([], ["user=a"]):
        with pytest.raises(click.UsageError) as caught:
            read([("user", "a"), ("add_config", value)], words)
        assert SECRET not in caught.value.format_message()


@pytest.mark.parametrize("value", FLAGS)
def test_secret_in_command_word_is_not_shown(value: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        read([], ["user=a", value])
    assert SECRET not in caught.value.format_message()


def test_login_in_command_word_is_not_shown() -> None:
    with pytest.raises(click.UsageError) as caught:
        read([], ["a:hunter2@kafka"])
    assert SECRET not in caught.value.format_message()


@pytest.mark.parametrize("key", [*FLAGS[:2], "password=hunter2", "a:hunter2@b"])
def test_secret_as_key_of_quota_file_is_not_shown(tmp_path: Path, key: str) -> None:
    (tmp_path / "quotas.yaml").write_text(f"quotas:\n- entity: {{user: a}}\n  '{key}': 1\n")
    done = CliRunner().invoke(cli, ["check", "--quotas", str(tmp_path / "quotas.yaml")])
    assert "unknown limit" in done.output
    assert SECRET not in done.output.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    "address",
    [
        "sasl://app:hunter2@kafka:9092",
        "app:hunter2@kafka:9092",
        "https://hunter2@kafka",
        "a:hunter2@b",
        "a:hunter2:c@b",
    ],
)
def test_password_in_bootstrap_address_is_not_shown(tmp_path: Path, address: str) -> None:
    (tmp_path / "sluice.yaml").write_text(
        f'cluster: {{name: d, bootstrap: ["{address}"]}}\nadmin: {{bind: "{address}"}}\n'
    )
    done = CliRunner().invoke(cli, ["check", "-c", str(tmp_path / "sluice.yaml")])
    assert done.exit_code == 2
    assert SECRET not in done.output
    assert "bootstrap[0]" in done.output


def test_error_about_value_without_secret_is_unchanged() -> None:
    for said in ("'127.0.0.1:port' ends in 'port'", "tls.key a@b: it is no key", "write password_file: FILE"):
        assert InvalidValue(said).message == said
    with pytest.raises(ValueError, match="does not end with one") as caught:
        parse_jaas("org.PlainLoginModule required password=hunter2")
    assert SECRET not in str(caught.value)
