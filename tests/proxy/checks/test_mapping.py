"""What `sluice check` says of rules that make users of names."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.checks.report import check
from proxy.cli import cli
from tests.proxy.checks.secure import CONFIG, KERBEROS, NOW_S, write

SUBJECT = "CN=sr,OU=Team,O=Example,L=Berlin,ST=Berlin,C=DE"
RULES = '"RULE:^CN=(.*?),.*$/$1/L,DEFAULT"'


def mapped(folder: Path, config: str, *names: str) -> list[str]:
    return check(write(folder, config), NOW_S, names=names).mapped


def test_each_rule_is_shown_at_work(tmp_path: Path) -> None:
    assert mapped(tmp_path, CONFIG) == [
        f"listener SASL_SSL: RULE:^CN=(.*?),.*$/$1/L makes 'sr' of '{SUBJECT}'",
        f"listener SASL_SSL: DEFAULT makes '{SUBJECT}' of '{SUBJECT}'",
    ]
    assert mapped(tmp_path, CONFIG.replace(RULES, "DEFAULT")) == []


def test_name_option_shows_user_made_by_each_rule(tmp_path: Path) -> None:
    write(tmp_path)
    asked = ["check", "--config", str(tmp_path / "sluice.yaml"), "--name", "CN=Orders,O=X"]
    said = CliRunner().invoke(cli, asked).output
    assert "RULE:^CN=(.*?),.*$/$1/L makes 'orders' of 'CN=Orders,O=X'" in said
    (line, _) = mapped(tmp_path, CONFIG, "OU=X")
    assert line == "listener SASL_SSL: RULE:^CN=(.*?),.*$/$1/L does not match 'OU=X'; try other names with --name"


def test_kerberos_rules_are_shown_with_example_principals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.checks.configuration.acceptor", lambda _: None)
    rules = '["RULE:[2:$1](kafka)s/.*/broker/", "RULE:[1:$1](.*)s/s(.*)/$1/U", DEFAULT]'
    lines = mapped(tmp_path, KERBEROS.replace('["RULE:[1:$1](.*)s/@.*//", DEFAULT]', rules))[2:]
    none, *others = (line.removeprefix("listener SASL_SSL: ") for line in lines)
    assert none.startswith("RULE:[2:$1](kafka)s/.*/broker/ matches neither 'sr@EXAMPLE.COM' nor 'sr/kafka.example.com@")
    assert others == [
        "RULE:[1:$1](.*)s/s(.*)/$1/U makes 'R' of 'sr@EXAMPLE.COM'",
        "DEFAULT makes 'sr' of 'sr@EXAMPLE.COM'",
    ]


def test_a_user_without_a_name_is_shown_as_what_it_is_counted_as(tmp_path: Path) -> None:
    (line,) = mapped(tmp_path, CONFIG.replace(RULES, "'RULE:^CN=sr(.*?),.*$/$1/'"))
    assert line.endswith(f" makes '' of '{SUBJECT}', counted as sluice:unnamed")


@pytest.mark.parametrize(
    ("rules", "doubled"),
    [
        (r"'RULE:^CN=[\\s]*(.*?),.*$/$1/'", r"\\s"),
        (r"'RULE:^CN=(\\w+),.*$/$1/'", r"\\w"),
        (r"'RULE:^CN=(\w+),.*$/$1/'", None),
        (r'"RULE:^CN=(\\w+),.*$/$1/"', None),
        (r"'RULE:^CN=(.*?)\\,.*$/$1/'", None),
    ],
)
def test_doubled_backslash_in_unquoted_mapping_rule_is_warned_about(
    tmp_path: Path, rules: str, doubled: str | None
) -> None:
    """As server.properties has it: CN=sr became user r, and nobody said so."""
    report = check(write(tmp_path, CONFIG.replace(RULES, rules)), NOW_S)
    assert [warning.path for warning in report.warnings] == ["listeners[0].tls.principal_mapping_rules"] * bool(doubled)
    for warning in report.warnings:
        assert warning.message.startswith(f"{doubled} in ")
        assert warning.hint.endswith(f"write {doubled[1:] if doubled else ''}")


def test_doubled_backslash_in_kerberos_rule_is_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.checks.configuration.acceptor", lambda _: None)
    config = KERBEROS.replace('"RULE:[1:$1](.*)s/@.*//"', r"'RULE:[1:$1](.*)s/\\d.*//'")
    (warning,) = check(write(tmp_path, config), NOW_S).warnings
    assert warning.path == "listeners[0].sasl.kerberos.principal_to_local_rules[0]"


def test_rule_that_matches_no_example_says_matches_neither(tmp_path: Path) -> None:
    (line,) = mapped(tmp_path, CONFIG.replace(RULES, r"'RULE:^CN=(?!s)(.*)x$/$1/'"))
    assert "matches neither" in line
