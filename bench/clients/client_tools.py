"""Command-line tools: kcat, Kafka Connect, MirrorMaker 2; `client_tools.py bootstrap scenario topic count tool`."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.clients.client_python import value

LATEST_S: Final = 60.0
JAVA: Final = (
    "java",
    "-Xmx400m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


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
    running = subprocess.run([*command, "-P", "-t", topic], input=lines, timeout=LATEST_S, check=False)
    return {"records": count} if running.returncode == 0 else {"error": "not delivered"}


def connect(bootstrap: str, scenario: str, topic: str, count: int) -> None:
    """A connector from a file to the topic, or from the topic to a file, until it is stopped."""
    folder = Path(tempfile.mkdtemp())
    folder.joinpath("records").write_bytes(b"".join(value(index) + b"\n" for index in range(count)))
    own = {
        "bootstrap.servers": bootstrap,
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "1000",
        "listeners": "http://127.0.0.1:0",
        **dict.fromkeys(("key.converter", "value.converter"), "org.apache.kafka.connect.storage.StringConverter"),
    }
    source = {"connector.class": "FileStreamSource", "topic": topic, "file": f"{folder}/records"}
    group = {"consumer.override.group.id": topic, "consumer.override.auto.offset.reset": "earliest"}
    sink = {"connector.class": "FileStreamSink", "topics": topic, "file": f"{folder}/read", **group}
    connector = {"name": topic, "tasks.max": "1", **(source if scenario == "produce" else sink)}
    files = (_properties(folder / topic, own), _properties(folder / "connector", connector))
    _java("connect.cli.ConnectStandalone", *files)


def mirror_maker(bootstrap: str, _: str, topic: str, __: int) -> None:
    """Between two names of one cluster, until it is stopped."""
    names = "offset-syncs.topic checkpoints.topic heartbeats.topic offset.storage config.storage status.storage"
    settings = {
        "clusters": "copy, target",
        "copy.bootstrap.servers": bootstrap,
        "target.bootstrap.servers": bootstrap,
        "copy->target.enabled": "true",
        "copy->target.topics": topic,
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in names.split()},
    }
    _java("connect.mirror.MirrorMaker", _properties(Path(tempfile.mkdtemp(), topic), settings))


def _java(main: str, *words: str) -> None:
    """In place of this program."""
    os.execvp(  # noqa: S606  no shell is wanted
        JAVA[0], [*JAVA, "-cp", os.environ["CLASSES"], f"org.apache.kafka.{main}", *words]
    )


def _properties(file: Path, settings: Mapping[str, str]) -> str:
    file.write_text("".join(f"{key}={said}\n" for key, said in settings.items()), encoding="utf-8")
    return str(file)


def _output(command: Sequence[str]) -> bytes:
    return subprocess.run(command, stdout=subprocess.PIPE, timeout=LATEST_S, check=False).stdout


if __name__ == "__main__":
    bootstrap, scenario, topic, count, tool = sys.argv[1:6]
    tools = {"kcat": kcat, "Kafka Connect": connect, "MirrorMaker 2": mirror_maker}
    said = tools[tool](bootstrap, scenario, topic, int(count)) or {}
    print(json.dumps(said), flush=True)
