"""A shell script of kafka-configs commands: what it would set in a cluster."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final

import click

from config.problems import ConfigError, InvalidValue, Problem, suggestion
from proxy.manage.formats.reading import Rules
from proxy.manage.formats.rules import Rule
from proxy.manage.formats.shell import Command, UnendedError, Word, commands
from proxy.manage.grammar import Asked
from proxy.manage.grammar import read as read_flags
from proxy.manage.wording import names
from quotas.entities import Default, Prefix
from quotas.numbers import java_double
from quotas.policy import Policy
from quotas.stores.edit import number

_TOOL: Final = re.compile(r"kafka-configs(?:\.sh)?")
_LOOKS: Final = re.compile(r"^(?!\s*#).*kafka-configs(?:\.sh)?\b.*\s--(?:alter|describe)\b", re.MULTILINE)
_TYPES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}
_SILENT: Final = frozenset(("set", "export", "cd", "echo", "exit"))
"""Commands of a shell that change no quotas."""
_ELSEWHERE: Final = ("--bootstrap-server", "--bootstrap-controller", "--zookeeper", "--command-config")
"""Which cluster a command is about, and how to reach it: of no concern here."""
_VALUED: Final = (
    *("--entity-type", "--entity-name", "--user", "--client", "--ip"),
    *("--add-config", "--delete-config"),
)
_BARE: Final = (
    *("--entity-default", "--user-defaults", "--client-defaults", "--ip-defaults"),
    *("--alter", "--describe"),
)
_MORE: Final = "${ARGS:-}"
_HEAD: Final = """\
#!/bin/sh
# BOOTSTRAP is the address of a broker (or of a proxy), ARGS what else kafka-configs takes: --command-config FILE.
set -eu
"""


def is_script(text: str) -> bool:
    """Whether a text looks like one."""
    return _LOOKS.search(text.replace("\\\n", " ")) is not None


# ------------------------------------------------------------------------------------------------------------- writing


def refuse(rule: Rule) -> str:
    """Return why no command can set a rule."""
    return "Kafka has no prefixes of client-ids" if isinstance(rule.entity.client_id, Prefix) else ""


def write(rules: Sequence[Rule], policy: Policy) -> str:  # noqa: ARG001  as all formats
    """Return a script that sets the rules, one command for each."""
    return _HEAD + "".join(f"{_command(rule)}\n" for rule in rules)


def _command(rule: Rule) -> str:
    limits = {kind: float(limit) for kind, limit in rule.limits.items()}
    configs = ",".join(f"{kind}={number(limit) or java_double(limit)}" for kind, limit in limits.items())
    words = ["--alter", "--add-config", configs]
    for kind, name in names(rule.entity).items():
        named = ["--entity-default"] if isinstance(name, Default) else ["--entity-name", str(name)]
        words += ["--entity-type", _TYPES[kind], *named]
    return f'kafka-configs.sh --bootstrap-server "$BOOTSTRAP" {_MORE} {shlex.join(words)}'


# ------------------------------------------------------------------------------------------------------------- reading


def read(source: str, text: str) -> tuple[Policy, Sequence[Problem]]:
    """Return the quotas that a script sets, and the commands of it that do something else. Raises ConfigError."""
    script = _Script(source)
    try:
        for each in commands(text):
            script.run(each)
    except UnendedError as error:
        problem = Problem(source, error.line, 1, "", "a quote that does not end", "close it")
        raise ConfigError([problem]) from None
    return script.rules.policy()


class _Script:
    """What a script sets, command after command."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.rules = Rules()

    def run(self, command: Command) -> None:
        """Take one command."""

        def problem(invalid: InvalidValue) -> Problem:
            return Problem(self.source, command.line, 1, "", invalid.message, invalid.hint)

        words = [word.text for word in command.words]
        tool = next((at for at, word in enumerate(words) if _TOOL.fullmatch(PurePath(word).name)), None)
        if tool is None:
            if words[0] not in _SILENT:
                first = words[0].partition("=")[0]  # of PASSWORD=… the name
                self.rules.notes.append(problem(InvalidValue(f"{first!r} is no kafka-configs command: skipped")))
            return
        try:
            flags = _flags(command.words[tool + 1 :])
            if ("describe", "") in flags:
                return
            if ("alter", "") not in flags:
                raise InvalidValue("neither --alter nor --describe", "say what the command does")  # noqa: TRY301  told below
            self._alter(read_flags(flags), problem)
        except InvalidValue as invalid:
            self.rules.wrong.append(problem(invalid))
        except click.UsageError as error:
            self.rules.wrong.append(problem(InvalidValue(error.format_message())))

    def _alter(self, asked: Asked, problem: Callable[[InvalidValue], Problem]) -> None:
        for entity in asked.entities():
            limits = {str(kind): limit for kind, limit in self.rules.limits.pop(entity, {}).items()}
            if before := [key for key in asked.removed if limits.pop(key, None) is None]:
                said = f"--delete-config {','.join(before)} of what the script has not set is skipped"
                self.rules.notes.append(problem(InvalidValue(said, "use sluice quotas delete")))
            limits.update(asked.added)
            of_entity = {kind: name if isinstance(name, Default) else str(name) for kind, name in names(entity).items()}
            self.rules.add(of_entity, [(key, java_double(limit)) for key, limit in limits.items()], problem)


def _shown(flag: str, text: str) -> str:
    """Return what is said of a value: its flag, where it may hold a password."""
    return f"the value of {flag}" if flag == "--add-config" else repr(text)


def _flags(words: Sequence[Word]) -> list[tuple[str, str]]:
    """Return the flags of a command with their values, as the grammar takes them. Raises InvalidValue."""
    flags: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.text.partition("=")
        if word.varies and not equals:
            if word.text == _MORE:
                continue
            raise InvalidValue(f"{name!r} is filled in by a shell", "write it out")
        if name in _BARE:
            flags.append((name.removeprefix("--").replace("-", "_"), ""))
            continue
        if name not in _VALUED and name not in _ELSEWHERE:
            raise InvalidValue(f"{name!r} is not known here", suggestion(name, [*_VALUED, *_BARE]))
        given = Word(value, word.varies) if equals else next(rest, None)
        if given is None:
            raise InvalidValue(f"{name} has no value", "give one")
        if name in _VALUED:
            if given.varies:
                raise InvalidValue(f"{_shown(name, given.text)} is filled in by a shell", "write it out")
            flags.append((name.removeprefix("--").replace("-", "_"), given.text))
    return flags
