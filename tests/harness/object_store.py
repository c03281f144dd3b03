"""An object store that speaks S3, on loopback: moto's server, with a Python of its own for all that it needs."""

import subprocess
import sys
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, Self

from tests.harness.jars import AWS_SDK, HADOOP_S3, JarError, cache_dir, jar_dir
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.process import Program

MOTO: Final = "moto[s3,server]>=5.2,<6"
_STARTED_S: Final = 300.0
_INSTALL_S: Final = 600.0


def install() -> None:
    """Put moto into the cache, if it is not there: ``make setup`` does."""
    if _installed().exists():
        return
    place = _python().parents[1]
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=_INSTALL_S)
    try:
        command = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", MOTO]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.CalledProcessError as error:
        raise JarError(f"cannot install {MOTO}: {error.stderr.strip()}") from None


class ObjectStore:
    """One bucket, ``bucket``, in the memory of a server."""

    bucket: Final = "lake"
    key: Final = "test"

    def __init__(self, folder: Path) -> None:
        if not _installed().exists():
            raise JarError(f"moto is not in {cache_dir()}: run `make setup`")
        self.address = f"{LOOPBACK}:{free_port()}"
        port = self.address.rpartition(":")[2]
        command = [str(_python()), str(Path(__file__).with_name("moto_server.py")), LOOPBACK, port]
        self._server = Program("moto", command, folder / "moto.log")

    def __enter__(self) -> Self:
        try:
            self._server.wait_until(self._made, "bucket", _STARTED_S)
        except BaseException:
            self._server.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def conf(self) -> list[str]:
        """What ``sluice analyze`` needs to reach it."""
        return [word for name, value in self.settings.items() for word in ("--conf", f"{name}={value}")]

    @property
    def environment(self) -> dict[str, str]:
        """What a program that reads by Arrow needs to reach it."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.key,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self.address}",
        }

    @property
    def settings(self) -> dict[str, str]:
        """The same for a session of Spark."""
        jars = [jar for one in (HADOOP_S3, AWS_SDK) for jar in sorted(jar_dir(one.name).glob("*.jar"))]
        return {
            "spark.jars": ",".join(map(str, jars)),
            "spark.hadoop.fs.s3a.endpoint": f"http://{self.address}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": self.key,
            "spark.hadoop.fs.s3a.secret.key": self.key,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def let_through(self, changes: int | None) -> int:
        """Refuse what would change an object when so many have been, until it is asked again; None: never.

        Returns how many there were since it was asked before. To a program this is its own end: what it still does
        changes nothing.
        """
        connection = HTTPConnection(self.address, timeout=10)
        try:
            connection.request("PUT", "/-/changes" if changes is None else f"/-/changes?left={changes}")
            return int(connection.getresponse().read())
        finally:
            connection.close()

    def _made(self) -> bool:
        connection = HTTPConnection(self.address, timeout=10)
        try:
            connection.request("PUT", f"/{self.bucket}")
            return connection.getresponse().status == HTTPStatus.OK
        except OSError:  # it does not listen yet
            return False
        finally:
            connection.close()


def _python() -> Path:
    return cache_dir() / "moto" / "bin" / "python"


def _installed() -> Path:
    """What is there when all of it is."""
    return _python().with_name("moto_server")
