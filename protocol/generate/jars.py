"""The cache of kafka-clients jars, which tests and benchmarks share, filled through Maven."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

# The last release with the versions that 4.0 removed (KIP-896), and the newest one.
RELEASES: Final = ("3.9.2", "4.4.0")

_POM: Final = """<project><modelVersion>4.0.0</modelVersion><groupId>sluice</groupId><artifactId>jars</artifactId>
<version>1</version><packaging>pom</packaging><dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka-clients</artifactId><version>{release}</version></dependency></dependencies></project>"""


def cached_jar_directory(release: str) -> Path:
    """Return the cache directory of a release; it exists only when it is complete."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kafka-sluice" / "jars" / f"kafka-clients-{release}"


def jar_directory(release: str) -> Path:
    """Return the directory of a release's jars, fetched through Maven if it is not there yet."""
    place = cached_jar_directory(release)
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            pom, jars = Path(scratch, "pom.xml"), Path(scratch, "jars")
            pom.write_text(_POM.format(release=release), encoding="utf-8")
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
            subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True)  # noqa: S603, S607  a developer's tool, on PATH
            jars.rename(place)
    return place
