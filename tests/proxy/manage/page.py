"""docs/managing-quotas.md as it is typed: its files, its commands, and what they print."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from proxy.cli import cli

PAGE = Path(__file__).parents[3] / "docs" / "managing-quotas.md"
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.yaml)\n")
_ANSWER = re.compile(r"\[y/N\]: (\w)$", re.MULTILINE)


@dataclass
class Shell:
    """Types commands in the current folder. What stands for an address in the page is replaced, both ways."""

    addresses: dict[str, str] = field(default_factory=dict)
    status: int = 0

    def run(self, command: str, expected: str = "") -> str:
        """Return what a command prints; ``expected`` has the answers to what it asks."""
        if command == "echo $?":
            return f"{self.status}\n"
        for name, address in self.addresses.items():
            command = command.replace(name, address)
        line, _, into = command.partition(" > ")
        program, *arguments = shlex.split(line)
        assert program == "sluice", command
        done = CliRunner().invoke(cli, arguments, input="\n".join(_ANSWER.findall(expected)) + "\n")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        self.status = done.exit_code
        printed = done.stdout if into else done.output
        for name, address in self.addresses.items():
            printed = printed.replace(address, name)
        if into:
            Path(into).write_text(printed)
            return done.stderr
        return printed


@dataclass(frozen=True)
class Block:
    """A block of the page: a file to write, or commands with what they print."""

    section: str
    kind: str
    text: str
    span: tuple[int, int]

    @property
    def file(self) -> str | None:
        found = _FILE.match(self.text)
        return found[1] if self.kind == "yaml" and found else None

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield each command, and what it prints."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page, in their order."""
    for found in _BLOCK.finditer(text):
        sections = re.findall(r"^## (.*)$", text[: found.start()], re.MULTILINE)
        kind = f"{found[1]}{found[2]}"
        yield Block(sections[-1] if sections else "", kind, found[3], found.span(3))


def typed(text: str, kinds: frozenset[str], shell: Shell) -> str:
    """Return the page with what its commands of some kinds do print; files are written into the current folder.

    Each section begins with the files that stand before all sections.
    """
    section, out, position = "", [], 0
    first = [block for block in blocks(text) if not block.section]
    for block in blocks(text):
        if block.section != section:
            section = block.section
            for each in first:
                if each.file is not None:
                    Path(each.file).write_text(each.text)
        if block.file is not None:
            Path(block.file).write_text(block.text)
        if block.kind in kinds:
            printed = (f"$ {command}\n{shell.run(command, expected)}" for command, expected in block.commands())
            out += [text[position : block.span[0]], *printed]
            position = block.span[1]
    return "".join([*out, text[position:]])
