"""Command-line tools: kcat, Kafka Connect, MirrorMaker 2; `client_tools.py bootstrap scenario topic count tool`."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.clients.client_python import value

LATEST_S: Final = 60.0
JAVA: Final = "java -Xmx400m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error"
WORKER: Final = """
bootstrap.servers={bootstrap}
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:0
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
"""
SOURCE: Final = "name={topic}\nconnector.class=FileStreamSource\ntopic={topic}\nfile={folder}/records\n"
SINK: Final = """
name={topic}
connector.class=FileStreamSink
topics={topic}
file={folder}/read
consumer.override.group.id={topic}
consumer.override.auto.offset.reset=earliest
"""
# Between two names of one cluster.
MIRROR: Final = """
clusters=copy, target
copy.bootstrap.servers={bootstrap}
target.bootstrap.servers={bootstrap}
copy->target.enabled=true
copy->target.topics={topic}
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
"""


def kcat(bootstrap: str, scenario: str, topic: str, count: int) -> dict[str, object]:
    """It exits with 1 if a record was not delivered."""
    settings = (f"client.id={topic}", "batch.size=16384", "auto.offset.reset=earliest")
    command = ["kcat", "-b", bootstrap, *(word for setting in settings for word in ("-X", setting))]
    if scenario == "admin":
        return {"steps": {"list": "ok" if _output([*command, "-L", "-t", topic]) else "error"}}
    if scenario == "consume":
        return {"records": len(_output([*command, "-C", "-t", topic, "-e", "-q"]).splitlines())}
    if scenario == "group":
        return {"records": len(_output([*command, "-c", str(count), "-q", "-G", topic, topic]).splitlines())}
    lines = b"".join(value(index) + b"\n" for index in range(count))
    done = subprocess.run([*command, "-P", "-t", topic], input=lines, timeout=LATEST_S, check=False)
    return {"records": count} if done.returncode == 0 else {"error": "not delivered"}


def _output(command: Sequence[str]) -> bytes:
    return subprocess.run(command, stdout=subprocess.PIPE, timeout=LATEST_S, check=False).stdout


def of_kafka(bootstrap: str, topic: str, count: int, main: str, *files: str) -> None:
    """In place of this program, until it is stopped; the first file has the topic in its name, so that it is known."""
    folder = tempfile.mkdtemp()
    Path(folder, "records").write_bytes(b"".join(value(index) + b"\n" for index in range(count)))
    names = [f"{folder}/{number}-{topic}" for number in range(len(files))]
    for name, text in zip(names, files, strict=True):
        Path(name).write_text(text.format(bootstrap=bootstrap, topic=topic, folder=folder), encoding="utf-8")
    command = [*JAVA.split(), "-cp", os.environ["CLASSES"], f"org.apache.kafka.connect.{main}", *names]
    os.execvp(command[0], command)  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    bootstrap, scenario, topic, count, tool = sys.argv[1:6]
    if tool == "kcat":
        print(json.dumps(kcat(bootstrap, scenario, topic, int(count))))
    elif tool == "Kafka Connect":
        connector = SOURCE if scenario == "produce" else SINK
        of_kafka(bootstrap, topic, int(count), "cli.ConnectStandalone", WORKER, connector)
    else:
        of_kafka(bootstrap, topic, 0, "mirror.MirrorMaker", MIRROR)
