"""Types the commands of a page of docs/ into one shell, in a folder of its own, and looks at what they print.

A block whose first line is `# NAME.yaml` (or .properties) is a file. Each `$ …` in a block of the kind `console` is a
command, and the lines below it are expected in its output, in this order, where `…` is any text. Names and ports of the
page are replaced by those of the test.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.jars import NEWEST_BROKER, classpath
from tests.proxy.manage.page import blocks

DOCS: Final = Path(__file__).parents[2] / "docs"
_FILE: Final = re.compile(r"# (\S+\.(?:yaml|properties))\n")
_END: Final = "end of the output, status "
TOOLS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
}


class Typist:
    """A shell in `folder`, with `sluice` and the tools of Kafka in its path; ends with all that it started."""

    def __init__(self, folder: Path, replaced: Mapping[str, str]) -> None:
        self.folder = folder
        self._replaced = replaced
        self._shell: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        tools = self.folder / "kafka-tools"
        tools.mkdir()
        for name, main in TOOLS.items():
            script = f'#!/bin/sh\nexec java -cp "{classpath(f"kafka-{NEWEST_BROKER}")}" {main} "$@"\n'
            (tools / name).write_text(script, encoding="utf-8")
            (tools / name).chmod(0o755)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "COLUMNS": "200"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._shell is not None
        os.killpg(self._shell.pid, signal.SIGTERM)
        try:
            self._shell.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.communicate()

    def type_page(self, name: str) -> None:
        """Write the files of a page and run its commands, in the order of the page."""
        text = (DOCS / name).read_text(encoding="utf-8")
        for block in blocks(text):
            if found := _FILE.match(block.text):
                (self.folder / found[1]).write_text(self._there(block.text), encoding="utf-8")
            assert block.kind in {"yaml", "properties", "console", "json"}, f"{name} has a block that nobody runs"
            if block.kind == "console":
                for command, expected in _commands(block.text):
                    said = self.run(command)
                    missing = _first_missing(expected, said)
                    assert missing is None, f"{missing!r} is not in\n$ {command}\n{said}"

    def place(self, source: Path, name: str) -> None:
        """Copy a file of the checkout, with the test's names."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self._there(source.read_text(encoding="utf-8")), encoding="utf-8")

    def run(self, command: str) -> str:
        """Return what a command prints, with the page's names."""
        assert self._shell is not None
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f'{self._there(command)}\necho "{_END}$?"\n')
        self._shell.stdin.flush()
        said = ""
        for line in self._shell.stdout:
            before, found, _ = line.partition(_END)
            said += before
            if found:
                return self._back(said)
        raise AssertionError(f"the shell ended: $ {command}\n{said}")

    def _there(self, text: str) -> str:
        for name, real in self._replaced.items():
            text = text.replace(name, real)
        return text

    def _back(self, text: str) -> str:
        for name, real in self._replaced.items():
            text = text.replace(real, name)
        return text


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a block, and the lines that are expected of it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = 1 + next(index for index, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[:count]), lines[count:]


def _first_missing(expected: list[str], said: str) -> str | None:
    """Return the first line that is not among those that were printed after the line before it."""
    left = iter(said.splitlines())
    for line in expected:
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        if not any(pattern.fullmatch(each) for each in left):
            return line
    return None
