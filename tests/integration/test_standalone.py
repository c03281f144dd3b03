"""The documented line of spark-submit, by a real master and two workers on loopback, whose executors are killed."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from analysis.warehouse import TABLES, Period, opened
from tests.analysis.gold import world
from tests.analysis.records import write_jsonl
from tests.harness.ports import free_port
from tests.integration.killed_executors import kill_executors
from tests.integration.standalone import Standalone, python_without_us

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parents[2]
BEGINS: Final = [world.MIDDAY_MS, world.MIDDAY_MS + 3_500_000]
SECONDS: Final = 200
FILES: Final = 4
QUOTAS: Final = "quotas:\n- {entity: {user: {default: true}}, producer_byte_rate: 1kB, consumer_byte_rate: 5kB}\n"
KILLED: Final = {"ingest": (1,), "gold": (5, 15), "whatif": (1,)}
"""How many tasks are done when an executor is killed."""


class Site:
    """A directory with documents in files, and quotas to try out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"PYSPARK_PYTHON": str(python_without_us(folder)), "SPARK_LOCAL_IP": "127.0.0.1"}
        (folder / "files").mkdir()
        (folder / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
        self.documents = world.documents(3, BEGINS, SECONDS)
        for part in range(FILES):
            write_jsonl(folder / "files" / f"{part}.jsonl", self.documents[part::FILES])

    def commands(self, warehouse: str) -> dict[str, list[str]]:
        place = ["--warehouse", str(self.folder / warehouse)]
        source = ["--files", str(self.folder / "files"), "--once", "--no-gold", "--max-documents", "1"]
        return {
            "ingest": ["ingest", *place, *source],
            "gold": ["gold", *place],
            "whatif": ["whatif", *place, "--quotas", str(self.folder / "quotas.yaml"), "--json"],
            "compact": ["compact", *place, "--older-than", "0s"],
        }

    def stored(self, warehouse: str) -> dict[str, Counter[Any]]:
        """All rows of the tables that are stored, and of gold."""
        root = self.folder / warehouse
        read = f"FROM read_parquet('{root}/{{}}/**/*.parquet', hive_partitioning = true, union_by_name = true)"
        found = {
            table: _rows(duckdb.connect(), f"{read.format(table)} SELECT * EXCLUDE (batch)")
            for table in ("usage", "documents")
        }
        gold = opened(str(root), Period(), TABLES)
        return found | {f"gold {table}": _rows(gold, f"FROM {table}") for table in TABLES}


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> Counter[Any]:
    """Sums of doubles depend on the order of their parts, in the last digits."""
    found = connection.execute(query).fetchall()
    return Counter(str([round(each, 6) if isinstance(each, float) else each for each in row]) for row in found)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


def documented() -> list[str]:
    """The options of the line in docs/analysis.md, and the program."""
    text = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"Spark standalone:\n\n```sh\n(?:PYSPARK_PYTHON=\S+ )?spark-submit (.*?)```", text, re.DOTALL)
    words = shlex.split(line.replace("\\\n", " "))
    return words[: words.index("ingest")]


def submitted(cluster: Standalone, site: Site, name: str, command: Sequence[str]) -> str:
    """Run a command by the documented line, on this cluster; some are killed executors of."""
    port = free_port()
    conf = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.ui.port": f"{port}"}
    words = documented()
    at = words.index("--packages")  # of the connector, whose jars are tested elsewhere
    del words[at : at + 2]
    words[words.index("--master") + 1] = cluster.url
    words[words.index("$ANALYSIS")] = str(ROOT / "analysis" / "__main__.py")
    # Programs are short: Java's second compiler costs more than it brings.
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf |= {"spark.executor.extraJavaOptions": java, "spark.driver.extraJavaOptions": java}
    settings = [word for each in conf.items() for word in ("--conf", "=".join(each))]
    after = KILLED.get(name, ())
    kill = partial(kill_executors, port, after)
    status, output, killed = cluster.submit(name, [*settings, *words, *command], site.environment, kill)
    assert status == 0, output
    assert killed == len(after), f"{name} has fewer tasks"
    return output


def in_one_process(commands: Sequence[Sequence[str]]) -> list[str]:
    """What commands print that follow each other in a process of their own, with one session."""
    program = "import sys, json; from analysis.cli import analyze\n"
    program += "for each in json.loads(sys.argv[1]): analyze(each, standalone_mode=False); print('--')"
    local = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    words = json.dumps([[*command, *local] for command in commands])
    run = subprocess.run(
        [sys.executable, "-c", program, words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return run.stdout.split("--\n")[:-1]


def test_killed_executors_change_no_result_of_the_documented_line(cluster: Standalone, tmp_path: Path) -> None:
    """Each result equals that of a run in one process without a kill: nothing is there twice or missing."""
    site = Site(tmp_path)
    whole, killed = (site.commands(name) for name in ("whole", "killed"))
    expected = dict(zip(KILLED, in_one_process([whole[name] for name in KILLED]), strict=True))
    found = {name: submitted(cluster, site, name, command) for name, command in killed.items()}
    rows = sum(len(each["rows"]["user"]) for each in site.documents)
    assert f"{len(site.documents)} documents, {rows:,} rows" in found["ingest"]
    assert site.stored("killed") == site.stored("whole")
    assert json.loads(re.findall(r"^\{$.*?^\}$", found["whatif"], re.MULTILINE | re.DOTALL)[0]) == json.loads(
        expected["whatif"]
    )
    report = ["report", "--warehouse", str(tmp_path / "killed"), "--out", str(tmp_path / "out")]
    made = CliRunner().invoke(analyze, report)
    assert made.exit_code == 0, made.output
    assert "carol, the 2nd" in Path(made.output.splitlines()[-1]).read_text(encoding="utf-8")
