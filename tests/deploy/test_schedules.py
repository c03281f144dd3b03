"""The crontab and the Airflow DAGs run commands that exist, with options that they have."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click
import pytest

from analysis.cli import analyze

DEPLOY: Final = Path(__file__).parents[2] / "deploy"


class Task:
    """An operator of Airflow: keeps its command, and what runs after it."""

    made: Final[list["Task"]] = []

    def __init__(self, task_id: str, bash_command: str) -> None:
        self.task_id, self.command = task_id, bash_command
        self.after: list[str] = []
        self.made.append(self)

    def __rshift__(self, other: "Task") -> "Task":
        self.after.append(other.task_id)
        return other


class Dag:
    def __init__(self, dag_id: str, **settings: Any) -> None:
        assert settings["max_active_runs"] == 1, dag_id

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks of the DAGs, without Airflow."""
    for name in ("airflow", "airflow.operators", "airflow.operators.bash"):
        module = ModuleType(name)
        vars(module).update(DAG=Dag, BashOperator=Task)
        monkeypatch.setitem(sys.modules, name, module)
    Task.made.clear()
    path = DEPLOY / "airflow_dag.py"
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {"__name__": "dag"})  # noqa: S102  our own file
    return Task.made


def _day(written: re.Match[str]) -> str:
    """Return a day for a shell's or a template's expression: the first one for the begin."""
    return "2026-03-01" if written[1] in ("start", " --date=yesterday") else "2026-03-02"


def require_known(line: str) -> str:
    """Parse the arguments of `sluice analyze COMMAND …`; return the command."""
    sluice, group, name, *arguments = shlex.split(line)
    assert (sluice, group) == ("sluice", "analyze")
    command = analyze.get_command(click.Context(analyze), name)
    assert command is not None, name
    command.make_context(name, arguments)
    return name


def test_dags_run_known_commands_in_order(tasks: list[Task]) -> None:
    lines = [re.sub(r"\{\{ data_interval_(start|end).*?\}\}", _day, each.command) for each in tasks]
    assert {require_known(line) for line in lines} == {"ingest", "gold", "report", "compact", "expire"}
    assert {each.task_id: each.after for each in tasks} == {
        "ingest": ["gold"], "gold": [], "report": ["compact"], "compact": ["expire"], "expire": []
    }  # fmt: skip


def test_crontab_runs_known_commands() -> None:
    text = (DEPLOY / "sluice-analysis.cron").read_text(encoding="utf-8")
    entries = re.findall(r"^(\S+) (\S+) \* \* \* sluice (.*)$", text, re.MULTILINE)
    assert len(entries) == 3
    lines = [line for *_, command in entries for line in command.split(" && ")]
    plain = [re.sub(r"\$\(date --utc( --date=yesterday)? .*?\)", _day, each) for each in lines]
    assert {require_known(line) for line in plain} == {"ingest", "gold", "report", "compact", "expire"}
    assert not re.search(r"(?<!\\)%", "".join(lines)), "cron ends a command at %"
