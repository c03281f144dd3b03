"""Node ids and addresses of brokers as plain data, and the file of them that ``cluster.state`` names."""

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.brokers import MAX_NODE_ID
from config.files import read_file
from config.units import MAX_HOST_LENGTH, MAX_PORT

_VERSION: Final = 1
_MAX_ID_LENGTH: Final = 255
_DIRECTORY_MODE: Final = 0o700


class NotUsableError(ValueError):
    """A state file that says nothing that could be used, and why."""


@dataclass(frozen=True, slots=True, order=True)
class KnownBroker:
    """One broker, and the address that it advertises."""

    node_id: int
    host: str
    port: int

    @property
    def can_be_kept(self) -> bool:
        """Whether the state file takes it: brokers may advertise what leads nowhere."""
        return 0 < len(self.host) <= MAX_HOST_LENGTH and self.host.isprintable() and 1 <= self.port <= MAX_PORT


@dataclass(frozen=True, slots=True)
class KnownBrokers:
    """The brokers that the addresses of one route lead to, in the order of their node ids."""

    bootstrap: tuple[str, ...]
    cluster_id: str
    """As Metadata says it; "" where none has."""
    brokers: tuple[KnownBroker, ...]


def read(path: Path) -> list[KnownBrokers]:
    """Return what a state file holds. Raises NotUsableError and OSError."""
    try:
        data = json.loads(read_file(path))
    except (ValueError, RecursionError):
        raise NotUsableError("it is not JSON") from None
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise NotUsableError(f"it is not of version {_VERSION}")
    try:
        return [_route(each) for each in data["routes"]]
    except (KeyError, TypeError, AttributeError):
        raise NotUsableError("it has not the form that it is written in") from None


def write(path: Path, known: Sequence[KnownBrokers]) -> None:
    """Put a state file in its place, whole or not at all. Raises OSError."""
    routes = [
        {
            "bootstrap": list(each.bootstrap),
            "cluster_id": each.cluster_id,
            "brokers": [{"node_id": one.node_id, "host": one.host, "port": one.port} for one in each.brokers],
        }
        for each in known
    ]
    text = json.dumps({"version": _VERSION, "routes": routes}, indent=1) + "\n"
    path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _route(data: dict[str, object]) -> KnownBrokers:
    bootstrap, cluster_id, brokers = data["bootstrap"], data["cluster_id"], data["brokers"]
    if not isinstance(bootstrap, list) or not isinstance(brokers, list):
        raise TypeError
    return KnownBrokers(
        tuple(_text(each, MAX_HOST_LENGTH + 8) for each in bootstrap),
        _text(cluster_id, _MAX_ID_LENGTH) if cluster_id else "",
        tuple(
            KnownBroker(
                _number(each["node_id"], 0, MAX_NODE_ID),
                _text(each["host"], MAX_HOST_LENGTH),
                _number(each["port"], 1, MAX_PORT),
            )
            for each in brokers
        ),
    )


def _text(value: object, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise TypeError
    return value


def _number(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise TypeError
    return value
