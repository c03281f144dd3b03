"""A shell script of kafka-configs commands: what it would set in a cluster."""

import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, Final

import click

from config.problems import ConfigError, InvalidValue, Problem
from proxy.manage.formats.reading import Rules
from proxy.manage.formats.rules import Rule
from proxy.manage.formats.shell import Command, commands
from proxy.manage.grammar import Asked, AskingCommand, entity_options, limit_options
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
_VALUED: Final = ("--bootstrap-server", "--bootstrap-controller", "--zookeeper", "--command-config")
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
    return f'kafka-configs.sh --bootstrap-server "$BOOTSTRAP" ${{ARGS:-}} {shlex.join(words)}'


# ------------------------------------------------------------------------------------------------------------- reading


def read(source: str, text: str) -> tuple[Policy, Sequence[Problem]]:
    """Return the quotas that a script sets, and the commands of it that do something else. Raises ConfigError."""
    script = _Script(source)
    try:
        for each in commands(text):
            script.run(each)
    except ValueError as error:
        problem = Problem(source, int(str(error)), 1, "", "a quote that does not end", "close it")
        raise ConfigError([problem]) from None
    return script.rules.policy()


class _Script:
    """What a script sets, command after command."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.rules = Rules()

    def run(self, command: Command) -> None:
        def problem(invalid: InvalidValue) -> Problem:
            return Problem(self.source, command.line, 1, "", invalid.message, invalid.hint)

        words = [word.text for word in command.words]
        tool = next((at for at, word in enumerate(words) if _TOOL.fullmatch(PurePath(word).name)), None)
        if tool is None:
            if words[0] not in _SILENT:
                self.rules.notes.append(problem(InvalidValue(f"{words[0]!r} is no kafka-configs command: skipped")))
            return
        try:
            self._alter(command, tool, problem)
        except InvalidValue as invalid:
            self.rules.wrong.append(problem(invalid))
        except click.UsageError as error:
            self.rules.wrong.append(problem(InvalidValue(error.format_message())))

    def _alter(self, command: Command, tool: int, problem: Any) -> None:
        given: list[str] = []
        skipped = False
        for word in command.words[tool + 1 :]:
            if skipped or word.text in _VALUED:
                skipped = not skipped and word.text in _VALUED
            elif not word.text.startswith(tuple(f"{option}=" for option in _VALUED)) and word.text != "${ARGS:-}":
                if word.varies:
                    raise InvalidValue(f"{word.text!r} is filled in by a shell", "write the value itself")
                given.append(word.text)
        if "--describe" in given:
            return
        if "--alter" not in given:
            raise InvalidValue("neither --alter nor --describe", "say what the command does")
        asked = _asked(given)
        if asked.removed:
            self.rules.notes.append(problem(InvalidValue("--delete-config is skipped", "use sluice quotas delete")))
        for entity in asked.entities():
            of_entity = {kind: name if isinstance(name, Default) else str(name) for kind, name in names(entity).items()}
            limits = {str(kind): limit for kind, limit in self.rules.limits.pop(entity, {}).items()} | dict(asked.added)
            self.rules.add(of_entity, [(key, java_double(limit)) for key, limit in limits.items()], problem)


def _asked(words: list[str]) -> Asked:
    asked = _tool().make_context("kafka-configs.sh", words).params["asked"]
    assert isinstance(asked, Asked)  # noqa: S101  mypy: what an AskingCommand makes
    return asked


@cache
def _tool() -> click.Command:
    @click.command(cls=AskingCommand)
    @entity_options
    @limit_options
    @click.option("--alter", is_flag=True)
    def command(**given: Any) -> None:
        raise AssertionError(given)

    return command
