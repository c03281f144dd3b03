"""The Java clients: Client.java against any kafka-clients, and the tools of the distribution."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.harness.jars import CLIENT_EXTRAS, NEWEST_BROKER, JarError, cache_dir, classpath

SOURCES: Final = Path(__file__).parent
COMPILE_TIMEOUT_S: Final = 120
TOOL_TIMEOUT_S: Final = 90.0
OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ToolError(Exception):
    """A tool of the distribution that failed; carries what it said."""


def java_command(version: str, program: str = "Client", sources: Path = SOURCES) -> list[str]:
    """Client.java, or another program beside it or in `sources`, with kafka-clients of that version."""
    jars = f"kafka-clients-{version}"
    classes = f"{_compiled(jars, program, sources)}:{classpath(jars)}:{classpath(CLIENT_EXTRAS.name)}"
    return ["java", *OPTIONS, "-cp", classes, program]


def distribution_command(version: str, program: str, *options: str) -> list[str]:
    """A program beside Client.java with everything that Kafka of that version brings."""
    jars = f"kafka-{version}"
    return ["java", *OPTIONS, *options, "-cp", f"{_compiled(jars, program)}:{classpath(jars)}", program]


def tool_command(main_class: str, *arguments: str) -> list[str]:
    """What the shell script of the distribution runs, for example `org.apache.kafka.tools.TopicCommand`."""
    return ["java", *OPTIONS, "-cp", classpath(f"kafka-{NEWEST_BROKER}"), main_class, *arguments]


def run_tool(main_class: str, *arguments: str, text: str = "") -> str:
    """Its standard output, with `text` as its input; ToolError when it exits with another status than 0."""
    command = tool_command(main_class, *arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ToolError(f"{main_class} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _compiled(jars: str, program: str, sources: Path = SOURCES) -> Path:
    """The class files, compiled once for each source text and jar set."""
    source = sources / f"{program}.java"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    place = cache_dir() / "classes" / f"{jars}-{digest}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        command = ["javac", "-nowarn", "-cp", classpath(jars), "-d", scratch, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise JarError(f"{source.name} does not compile against {jars}:\n{done.stderr}")
        shutil.copytree(scratch, place, dirs_exist_ok=True)
    return place
