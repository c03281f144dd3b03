"""docs/managing-quotas.md prints what its commands print, and lists what they know."""

import re
import shlex
from pathlib import Path

import click
import pytest

from config.stores import ZooKeeperTls
from proxy.manage.cli import quotas
from proxy.manage.linting import NAMES
from proxy.manage.zookeeper_client import settings_of
from tests.proxy.manage.page import PAGE, Shell, blocks, typed

TARGETS = {
    "config_path", "quota_file", "zookeeper", "zookeeper_config", "bootstrap_server", "command_config"
}  # fmt: skip
TEXT = PAGE.read_text(encoding="utf-8")


def test_documented_quota_commands_print_the_documented_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need no broker; tests/integration/test_managing_quotas.py has all of them."""
    monkeypatch.chdir(tmp_path)
    assert typed(TEXT, frozenset(("console",)), Shell()) == TEXT


def test_every_command_is_run_somewhere() -> None:
    kinds = {block.kind for block in blocks(TEXT)}
    assert kinds == {"yaml", "console", "console broker", "console proxy", "properties"}
    assert all(block.file is not None for block in blocks(TEXT) if block.kind == "yaml")


def test_the_file_for_zookeeper_says_what_it_is_said_to(tmp_path: Path) -> None:
    [block] = [block for block in blocks(TEXT) if block.kind == "properties"]
    (tmp_path / "zk.properties").write_text(block.text)
    settings, password = settings_of("zk:2181", tmp_path / "zk.properties")
    assert settings.tls == ZooKeeperTls(ca=Path("/etc/kafka/zookeeper-ca.pem"), certificate=Path("/etc/kafka/own.pem"))
    assert settings.sasl is not None
    assert (settings.sasl.username, password, settings.set_acl) == ("kafka", "...", True)


def test_documented_lint_findings_equal_those_in_code() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \| .+ \|$", TEXT, re.MULTILINE) == [*NAMES]


def test_every_target_option_is_documented() -> None:
    """Each is in the table, so that nobody has to look for one in the code."""
    options = {
        option
        for parameter in quotas.get_command(click.Context(quotas), "describe").params  # type: ignore[union-attr]  # it is there
        for option in parameter.opts
        if parameter.name in TARGETS
    }
    assert {option for option in options if f"`{option}" not in TEXT and f" {option}" not in TEXT} == set()


@pytest.mark.parametrize("name", quotas.list_commands(click.Context(quotas)))
def test_every_command_has_an_example(name: str) -> None:
    typed_ones = [shlex.split(command)[1:3] for block in blocks(TEXT) for command, _ in block.commands()]
    assert ["quotas", name] in typed_ones
