"""Writes the man page and the shell completions of ``sluice`` into deploy/share, from its commands: ``make man``.

The wheel installs them below ``share/`` (``[tool.hatch.build.targets.wheel.shared-data]``).
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from proxy import __version__
from proxy.cli import HELP, cli

SHARE: Final = Path(__file__).parent / "share"
_SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash-completion/completions/sluice": BashComplete,
    "zsh/site-functions/_sluice": ZshComplete,
    "fish/vendor_completions.d/sluice.fish": FishComplete,
}


def files() -> dict[str, str]:
    """Return the text of each file, by its place below ``share/``."""
    found = {"man/man1/sluice.1": "\n".join(_page()) + "\n"}
    for path, shell in _SHELLS.items():
        found[path] = shell(cli, {}, "sluice", "_SLUICE_COMPLETE").source()
    return found


def _page() -> Iterator[str]:
    yield f'.TH SLUICE 1 "" "sluice {__version__}"'
    yield ".SH NAME"
    yield f"sluice \\- {_escaped(_first_line(cli))}"
    yield ".SH SYNOPSIS"
    yield ".B sluice"
    yield ".I COMMAND"
    yield "[OPTIONS] [ARGUMENTS]"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(cli.epilog or "")
    yield ".SH COMMANDS"
    yield from _section(cli, "sluice")


def _section(command: click.Command, name: str) -> Iterator[str]:
    """Yield the part of a command, and of those below it."""
    if isinstance(command, click.Group):
        with click.Context(command, info_name=name, help_option_names=HELP) as context:
            for each in command.list_commands(context):
                below = command.get_command(context, each)
                assert below is not None  # noqa: S101  it lists it
                yield from _section(below, f"{name} {each}")
        return
    with click.Context(command, info_name=name, help_option_names=HELP) as context:
        yield f".SS {_escaped(' '.join([name, *command.collect_usage_pieces(context)]))}"
        yield from _paragraphs(command.help or "")
        for option in command.get_params(context):
            record = option.get_help_record(context)
            if record is not None:
                yield ".TP"
                yield f"\\fB{_escaped(record[0])}\\fR"
                yield _escaped(record[1])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        if paragraph.startswith("\b\n"):  # click's mark of lines that are not joined
            yield from (".nf", *map(_escaped, paragraph.splitlines()[1:]), ".fi")
        else:
            yield _escaped(" ".join(paragraph.split()))


def _first_line(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").partition("\n")[0]


def _escaped(text: str) -> str:
    """Return text that roff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        place = SHARE / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
