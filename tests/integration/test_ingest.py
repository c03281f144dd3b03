"""Usage records from a real topic into the warehouse: killed at any moment, made again, on a cluster, refused."""

import asyncio
import signal
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb
import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from analysis.ingest.source import KEPT_BYTES
from tests.analysis.records import Document, document, row, write_jsonl
from tests.harness.jars import SPARK_KAFKA, jar_dir
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import until
from tests.harness.process import Program
from tests.harness.rows import usage
from tests.integration.conftest import fresh_name

pytestmark = pytest.mark.spark

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 600.0
PARTITIONS: Final = 3
INSTANCES: Final = 3
DOCUMENTS: Final = 40
"""Of each instance."""
LARGE: Final = 50_000_000
ZEROS: Final = 16
NO_TEXT: Final = b"\xff\xfe no UTF-8 \x00"
ROWS: Final = [
    row(f"user-{number}", bytes_in=1_000 + number, produce_bytes=1_000, produce_requests=1) for number in range(20)
]
SMALL: Final = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
LOCAL: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=1g", *SMALL)


def jars() -> tuple[str, str]:
    """Return where Spark's Kafka source is."""
    return "--jars", str(jar_dir(SPARK_KAFKA.name))


def documents(instance: str) -> list[Document]:
    """Half an hour and a half: two hours are concerned."""
    return [{**document(seq, ROWS, second=120 * seq), "instance": instance} for seq in range(DOCUMENTS)]


async def fill(bootstrap: str, topic: str, *, with_large: bool) -> None:
    """Write what proxies would, some of it twice, something unreadable, and last what was never committed."""
    options = {"bootstrap_servers": bootstrap, "compression_type": "zstd"}
    async with AIOKafkaProducer(**options) as producer:
        for number in range(INSTANCES):
            for each in documents(f"edge-{number}"):
                for _ in range(2 if each["seq"] % 10 == 0 else 1):
                    await producer.send(topic, orjson.dumps(each), key=f"edge-{number}".encode())
        await producer.send_and_wait(topic, b"nonsense", partition=0)
    if with_large:
        await send_large(bootstrap, topic)
    await send_unusable(bootstrap, topic)
    async with AIOKafkaProducer(**options, transactional_id=topic) as producer:
        for partition in range(PARTITIONS):
            await producer.begin_transaction()
            given_up = orjson.dumps({**document(0, ROWS), "instance": "aborted"})
            await producer.send_and_wait(topic, given_up, partition=partition)
            await producer.abort_transaction()


async def send_large(bootstrap: str, topic: str) -> None:
    """Write what is small on its way and large when it is read, and what is large in any case."""
    large = {"max_request_size": LARGE + 2**16, "max_batch_size": LARGE + 2**16}
    for codec, times in (("zstd", ZEROS), ("gzip", 1), ("lz4", 1), ("snappy", 1), (None, 1)):
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, **large) as producer:
            for _ in range(times):
                await producer.send_and_wait(topic, bytes(LARGE), partition=0)


async def send_unusable(bootstrap: str, topic: str) -> None:
    """Write what is no text, what is of no time, and a good document behind it all."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(topic, NO_TEXT, partition=0)
        for number, time_ms in enumerate((0, 4_070_908_800_000)):
            of_no_time = {**document(number, ROWS), "instance": "lost", "time_ms": time_ms}
            await producer.send_and_wait(topic, orjson.dumps(of_no_time), partition=0)
        # Behind it all, so that it is seen that reading went on.
        await producer.send_and_wait(topic, orjson.dumps({**documents("edge-0")[0], "seq": DOCUMENTS}), partition=0)


def filled(cluster: KafkaCluster, *, with_large: bool) -> str:
    """Return a topic with documents."""
    name = fresh_name("usage")
    with cluster.admin() as admin:
        admin.create_topic(name, partitions=PARTITIONS, replicas=1, configs={"max.message.bytes": str(LARGE + 2**16)})
    asyncio.run(fill(cluster.bootstrap, name, with_large=with_large))
    return name


@pytest.fixture(scope="module")
def usage_topic(cluster: KafkaCluster) -> str:
    return filled(cluster, with_large=True)


def run(name: str, command: Sequence[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Exit status and output of a program; it is stopped in any case."""
    with Program(name, command, folder / f"{name}.log", environment=environment) as program:
        status = program.wait(TIMEOUT_S)
    return status, program.output()


def ingest(folder: Path, *arguments: str) -> tuple[int, str]:
    sluice = str(Path(sys.executable).parent / "sluice")
    return run("ingest", [sluice, "analyze", "ingest", "--warehouse", str(folder / "warehouse"), *arguments], folder)


def stored(warehouse: Path) -> dict[str, tuple[int, int, int]]:
    """Documents, rows and bytes of each instance, as DuckDB finds them: in whatever file is anywhere in the table."""
    query = "SELECT instance, count(DISTINCT (boot, seq)) FROM read_parquet(?) GROUP BY instance"
    documents = dict(duckdb.execute(query, [f"{warehouse}/documents/**/*.parquet"]).fetchall())
    query = f"SELECT instance, count(*), sum(bytes_in) FROM {usage(warehouse)} GROUP BY instance"  # noqa: S608
    found = duckdb.execute(query)
    return {instance: (documents[instance], int(rows), int(total)) for instance, rows, total in found.fetchall()}


def expected() -> dict[str, tuple[int, int, int]]:
    """One more of the first instance stands behind the poison."""
    total = sum(each["bytes_in"] for each in ROWS)
    counts = [DOCUMENTS + (number == 0) for number in range(INSTANCES)]
    return {f"edge-{number}": (each, each * len(ROWS), each * total) for number, each in enumerate(counts)}


def check_rejected(warehouse: Path, *, with_large: bool = True) -> None:
    """Each has its place, its reason and, of its text, what is worth keeping: as DuckDB reads it."""
    query = 'SELECT size, octet_length(value), fault, value FROM read_parquet(?) ORDER BY partition, "offset"'
    found = duckdb.execute(query, [f"{warehouse}/rejected/*/*.parquet"]).fetchall()
    assert found[0][3] == b"nonsense"
    large = ZEROS + 4 if with_large else 0
    what = (LARGE, KEPT_BYTES, f"has {LARGE} bytes, and may have 8388608")
    assert [each[:3] for each in found[1 : large + 1]] == [what] * large
    no_text, past, future = found[large + 1 :]
    assert no_text[2:] == ("is not JSON", NO_TEXT)
    assert [each[2].partition(",")[0] for each in (past, future)] == [
        "wrong clock: time_ms is 0",
        "wrong clock: time_ms is 4070908800000",
    ]


_STORED: Final = INSTANCES * DOCUMENTS + 1
SUM: Final = (
    f"{_STORED:,} documents, {_STORED * len(ROWS):,} rows, "
    f"{INSTANCES * DOCUMENTS // 10} duplicate, {ZEROS + 8} rejected (2 of a wrong clock)"
)


@pytest.mark.integration
def test_ingest_rejects_too_large_records_and_stores_the_rest(
    cluster: KafkaCluster, usage_topic: str, tmp_path: Path
) -> None:
    place = ("--bootstrap", cluster.bootstrap, "--topic", usage_topic)
    status, output = ingest(tmp_path, *place, "--once", "--no-gold", *LOCAL, *jars())
    assert status == 0, output
    assert SUM in output
    assert stored(tmp_path / "warehouse") == expected()
    check_rejected(tmp_path / "warehouse")


NOT_KILLED_AT: Final = ("0 keys", "0 documents", "0 all", "0", "1 usage", "1 documents", "1 rejected", "1")
"""Of two batches. Left are: a first file of rows is in place; one of rejected texts; one of names; all is in place."""


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_ingest_killed_at_several_moments_stores_every_record_once(cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = filled(cluster, with_large=False)
    assert killed_and_ended(cluster, topic, tmp_path, NOT_KILLED_AT) == 4
    assert stored(tmp_path / "warehouse") == expected()
    check_rejected(tmp_path / "warehouse", with_large=False)


@pytest.mark.matrix
@pytest.mark.timeout(1500)
def test_ingest_killed_at_any_moment_stores_every_record_once(
    cluster: KafkaCluster, usage_topic: str, tmp_path: Path
) -> None:
    assert killed_and_ended(cluster, usage_topic, tmp_path) >= 10
    assert stored(tmp_path / "warehouse") == expected()
    check_rejected(tmp_path / "warehouse")


def killed_and_ended(cluster: KafkaCluster, topic: str, folder: Path, left_out: Sequence[str] = ()) -> int:
    """Repeat an ingestion that is killed until one is not. Returns how many were."""
    notes = folder / "killed"
    notes.mkdir()
    for moment in left_out:
        (notes / moment).touch()
    program = [sys.executable, str(Path(__file__).with_name("killed_ingest.py")), str(notes)]
    place = ["--warehouse", str(folder / "warehouse"), "--bootstrap", cluster.bootstrap, "--topic", topic]
    options = [*place, "--once", "--max-documents", "90", "--no-gold", *LOCAL, *jars()]
    environment = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(bare_python(folder))}
    statuses: list[int] = []
    while not statuses or statuses[-1] == -signal.SIGKILL:
        status, output = run(f"ingest-{len(statuses)}", [*program, "ingest", *options], folder, **environment)
        assert status in (0, -signal.SIGKILL), output
        statuses.append(status)
    assert len(list(notes.iterdir())) == len(left_out) + len(statuses) - 1
    return len(statuses) - 1


@pytest.mark.integration
def test_a_topic_that_was_made_again_is_read_from_its_begin(cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = fresh_name("usage")
    place = ("--bootstrap", cluster.bootstrap, "--topic", topic, "--once", *LOCAL, *jars())
    outputs = []
    for boot, seqs in (("before", range(5)), ("after", range(2, 9))):
        asyncio.run(made_again(cluster.bootstrap, topic))
        asyncio.run(send(cluster.bootstrap, topic, [{**document(seq, ROWS), "boot": boot} for seq in seqs]))
        status, output = ingest(tmp_path, *place, "--no-gold")
        assert status == 0, output
        outputs.append(output)
    assert "was deleted and recreated since the last run: it is read from its beginning" in outputs[1]
    assert f"7 documents, {7 * len(ROWS)} rows, 2 missing" in outputs[1]
    assert stored(tmp_path / "warehouse")["edge-1"][:2] == (12, 12 * len(ROWS))


@pytest.mark.matrix
def test_a_topic_that_is_not_there_is_told_in_a_line(cluster: KafkaCluster, tmp_path: Path) -> None:
    status, output = ingest(tmp_path, "--bootstrap", cluster.bootstrap, "--topic", "none", "--once", *LOCAL, *jars())
    assert status == 2, output
    assert "topic none: it is not there, or this login may not see it" in output.splitlines()[-1]


async def made_again(bootstrap: str, topic: str) -> None:
    """Delete a topic, if it is there, and create it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        if topic in await admin.list_topics():
            await admin.delete_topics([topic])
        await until(admin.list_topics, f"{topic} deleted", is_so=lambda topics: topic not in topics)
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()


async def send(bootstrap: str, topic: str, sent: Sequence[Document]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="zstd") as producer:
        for each in sent:
            await producer.send_and_wait(topic, orjson.dumps(each))


@pytest.mark.matrix
def test_ingest_and_whatif_run_on_spark_cluster_workers(
    cluster: KafkaCluster, usage_topic: str, tmp_path: Path
) -> None:
    """Two workers, processes of their own, that have this package from the session alone."""
    warehouse = tmp_path / "warehouse"
    submit = Submit(tmp_path)
    options = ["--bootstrap", cluster.bootstrap, "--topic", usage_topic, "--once", *jars()]
    assert SUM in submit("ingest", "--warehouse", str(warehouse), *options)
    assert stored(warehouse) == expected()
    out = tmp_path / "out"
    proposed = tmp_path / "proposed.yaml"
    proposed.write_text("quotas:\n  - {entity: {user: user-1}, producer_byte_rate: 1}\n", encoding="utf-8")
    submit("whatif", "--warehouse", str(warehouse), "--out", str(out), "--quotas", str(proposed))
    query = "SELECT DISTINCT user FROM read_parquet(?) WHERE verdict = 'yes'"
    assert duckdb.execute(query, [f"{out}/whatif/*.parquet"]).fetchall() == [("user-1",)]


def bare_python(folder: Path) -> Path:
    """A Python that knows what is installed, and not that this package is: neither by its install nor by its folder."""
    python = folder / "python"
    libraries = sysconfig.get_path("purelib")
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{libraries}" PYTHONSAFEPATH=1 exec {sys.executable} -S "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    return python


class Submit:
    """spark-submit to a cluster of this machine: workers know what is installed, and not that this package is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._python = bare_python(folder)

    def __call__(self, command: str, *arguments: str) -> str:
        """What the command printed, to stdout and stderr."""
        conf = ("--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false", *SMALL)
        spark = str(Path(sys.executable).parent / "spark-submit")
        status, output = run(
            f"submitted-{command}",
            [
                *(spark, "--master", "local-cluster[2,1,1024]", *conf),
                *(str(ROOT / "analysis" / "__main__.py"), command, *arguments),
            ],
            self._folder,
            PYSPARK_PYTHON=str(self._python),
            SPARK_LOCAL_IP="127.0.0.1",
            SPARK_WORKER_DIR=str(self._folder / "work"),
        )
        assert status == 0, output
        return output


ANOTHER: Final = """import collections, sys
sys.version_info = collections.namedtuple("version_info", "major minor micro releaselevel serial")(3, 99, 0, "final", 0)
"""


@pytest.mark.matrix
def test_workers_of_another_python_are_named(tmp_path: Path) -> None:
    """As they would be where workers find another one in their path; and what is to be done about it."""
    (tmp_path / "files").mkdir()
    write_jsonl(tmp_path / "files" / "a.jsonl", [document(0, ROWS)])
    (tmp_path / "sitecustomize.py").write_text(ANOTHER, encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    status, output = run(
        "another",
        [
            *(str(Path(sys.executable).parent / "spark-submit"), "--master", "local-cluster[1,1,1024]", *SMALL),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"),
            *(str(ROOT / "analysis" / "__main__.py"), "ingest", "--once"),
            *("--warehouse", str(tmp_path / "warehouse"), "--files", str(tmp_path / "files")),
        ],
        tmp_path,
        PYSPARK_PYTHON=str(python),
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_WORKER_DIR=str(tmp_path / "work"),
    )
    assert status == 1, output
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    said = (
        f"workers run Python 3.99, and this program runs {here}: set PYSPARK_PYTHON to a Python {here} that each worker"
    )
    assert said in [line for line in output.splitlines() if line.startswith("error: ")][-1]
