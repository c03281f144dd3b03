"""Node ids and addresses of brokers as plain data, and the state file that holds them (``cluster.state``)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.brokers import MAX_NODE_ID
from config.files import read_file
from config.units import MAX_HOST_LENGTH, MAX_PORT
from proxy.runtime.private_file import write_atomically

_VERSION: Final = 1
_MAX_ID_LENGTH: Final = 255


class NotUsableError(ValueError):
    """A state file that is unusable; the text says why."""


@dataclass(frozen=True, slots=True, order=True)
class KnownBroker:
    """A broker and its advertised address."""

    node_id: int
    host: str
    port: int

    @property
    def can_be_kept(self) -> bool:
        """Whether the state file accepts it: brokers may advertise unusable addresses."""
        return 0 < len(self.host) <= MAX_HOST_LENGTH and self.host.isprintable() and 1 <= self.port <= MAX_PORT


@dataclass(frozen=True, slots=True)
class KnownBrokers:
    """The brokers of one route, by node id."""

    bootstrap: tuple[str, ...]
    cluster_id: str
    """The id in Metadata; "" if there was none."""
    brokers: tuple[KnownBroker, ...]


def read(path: Path) -> list[KnownBrokers]:
    """Return the content of a state file. Raises NotUsableError and OSError."""
    try:
        data = json.loads(read_file(path))
    except (ValueError, RecursionError):
        raise NotUsableError("it is not JSON") from None
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise NotUsableError(f"it is not of version {_VERSION}")
    try:
        return [_route(each) for each in data["routes"]]
    except (KeyError, TypeError, AttributeError):
        raise NotUsableError("it does not have the expected form") from None


def write(path: Path, known: Sequence[KnownBrokers]) -> None:
    """Write a state file atomically. Raises OSError."""
    routes = [
        {
            "bootstrap": list(each.bootstrap),
            "cluster_id": each.cluster_id,
            "brokers": [{"node_id": one.node_id, "host": one.host, "port": one.port} for one in each.brokers],
        }
        for each in known
    ]
    text = json.dumps({"version": _VERSION, "routes": routes}, indent=1) + "\n"
    write_atomically(path, text)


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
