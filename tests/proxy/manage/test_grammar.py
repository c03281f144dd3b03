"""Entities and limits on command lines: the flags of kafka-configs, the short form, and what is wrong with either."""

import shlex

import click
import pytest
from click.testing import CliRunner

from proxy.manage.grammar import (
    Named,
    QuotaArguments,
    QuotaCommand,
    adding_option,
    entity_options,
    limit,
    removing_option,
)
from quotas.entities import Default, Entity, Group, Prefix
from quotas.stores.filters import Specified

DEFAULT = Default.DEFAULT
ANY = Specified.ANY


def asked(line: str) -> QuotaArguments:
    found: list[QuotaArguments] = []

    @click.command(cls=QuotaCommand)
    @entity_options
    @adding_option
    @removing_option
    def command(arguments: QuotaArguments) -> None:
        found.append(arguments)

    command.main(shlex.split(line), standalone_mode=False)
    return found[0]


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        ("", []),
        ("--user alice", [{"user": "alice"}]),
        ("--entity-type users --entity-name alice", [{"user": "alice"}]),
        ("--entity-name alice --entity-type users", [{"user": "alice"}]),
        ("user=alice", [{"user": "alice"}]),
        ("--user-defaults", [{"user": DEFAULT}]),
        ("--entity-type users --entity-default", [{"user": DEFAULT}]),
        ("user-default", [{"user": DEFAULT}]),
        ("'user=<default>'", [{"user": DEFAULT}]),
        ("--user '<default>'", [{"user": "<default>"}]),
        ("--client web", [{"client-id": "web"}]),
        ("--client-id web", [{"client-id": "web"}]),
        ("client-id=a=b", [{"client-id": "a=b"}]),
        ("--user alice --client-defaults", [{"user": "alice", "client-id": DEFAULT}]),
        (
            "--entity-type clients --entity-type users --entity-default --entity-name bob",
            [{"user": "bob", "client-id": DEFAULT}],
        ),
        ("--entity-type users", [{"user": ANY}]),
        ("--entity-type users --entity-type clients --entity-name bob", [{"user": "bob", "client-id": ANY}]),
        ("user client-id", [{"user": ANY, "client-id": ANY}]),
        ("--ip ::ffff:10.0.0.1", [{"ip": "10.0.0.1"}]),
        ("--ip-defaults", [{"ip": DEFAULT}]),
        ("user-group=team client-id-prefix=batch-", [{"user": Group("team"), "client-id": Prefix("batch-")}]),
        ("user=alice user=bob", [{"user": "alice"}, {"user": "bob"}]),
        (
            "--user alice --user bob client-id=x",
            [{"user": "alice", "client-id": "x"}, {"user": "bob", "client-id": "x"}],
        ),
    ],
)
def test_entity_arguments_are_parsed_in_every_style(line: str, targets: list[dict[str, Named]]) -> None:
    assert list(asked(line).targets) == targets


@pytest.mark.parametrize(
    ("line", "added", "removed"),
    [
        ("--add-config producer_byte_rate=1024", {"producer_byte_rate": 1024}, []),
        ("--add-config 'a = 1.0E7, b=[50]'", {"a": 1e7, "b": 50}, []),
        ("--add-config a=1 --add-config b=2", {"a": 1, "b": 2}, []),
        ("producer_byte_rate=1MiB", {"producer_byte_rate": 2**20}, []),
        ("--add-config connection_creation_rate=5", {"connection_creation_rate": 5}, []),
        ("--delete-config 'producer_byte_rate, nonsense'", {}, ["producer_byte_rate", "nonsense"]),
        ("producer_byte_rate", {}, ["producer_byte_rate"]),
    ],
)
def test_limit_arguments_are_parsed_into_added_and_removed(
    line: str, added: dict[str, float], removed: list[str]
) -> None:
    said = asked(line)
    assert (said.added, list(said.removed)) == (added, removed)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--entity-type topics", "--entity-type: 'topics' has no quotas; known here: users, clients, ips"),
        ("--entity-type user", "did you mean users?"),
        ("--entity-name alice", "more names than types"),
        ("--user a --entity-type users", "two styles"),
        ("--user ''", "--user: is empty; give a name, or --user-defaults for the default"),
        ("--entity-type users --entity-name ''", "--entity-name: is empty; give a name, or --entity-default"),
        ("user=", "user=: is empty; give a name, or user-default for the default"),
        ("--ip example.com", "--ip: 'example.com' is not an IP address; host names are not resolved"),
        ("--ip 10.0.0.1 --user a", "ip cannot be combined"),
        ("usr=alice", "did you mean user?"),
        ("alice", "'alice' is neither an entity nor a quota name"),
        ("user-group", "user-group: has no name; write user-group=NAME"),
        ("--add-config producer_byte_rate", "'producer_byte_rate' is no pair; write it like producer_byte_rate=1MiB"),
        ("--add-config producer_byte_rate=1mib", "producer_byte_rate: '1mib' has the unknown unit"),
        ("--add-config a=1,a=2", "--add-config: a is given twice; give it once"),
        ("producer_byte_rate=1 --add-config producer_byte_rate=2", "producer_byte_rate is given twice"),
        ("--add-config 'a b=1'", "'a b' is not the name of a quota"),
        ("request_percentage=lots", "request_percentage: 'lots' is not a number; write it like 200 or 12.5"),
    ],
)
def test_wrong_entity_or_limit_argument_is_refused_with_fix(line: str, said: str) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  usage, or a file
        asked(line)
    assert said in str(raised.value)


def test_entity_without_name_is_refused_for_changes() -> None:
    assert asked("user=alice client-id-default").entities() == [Entity("alice", DEFAULT)]
    with pytest.raises(click.UsageError, match="no entity given"):
        asked("producer_byte_rate=1").entities()
    with pytest.raises(click.UsageError, match=r"client-id without a name.*--entity-type clients"):
        asked("user=alice client-id").entities()


def test_help_names_all_flags() -> None:
    @click.command(cls=QuotaCommand)
    @entity_options
    @adding_option
    @removing_option
    def command(arguments: QuotaArguments) -> None:
        raise AssertionError(arguments)

    shown = CliRunner().invoke(command, ["--help"])
    assert shown.exit_code == 0
    assert all(flag in shown.output for flag in ("--entity-type", "--client-defaults", "--delete-config", "user=NAME"))


@pytest.mark.parametrize(("text", "value"), [("1e3", 1000), (".5", 0.5), ("1KiB", 1024), ("Infinity", float("inf"))])
def test_limits_as_java_and_as_a_quota_file_write_them(text: str, value: float) -> None:
    assert limit("producer_byte_rate", text) == value
