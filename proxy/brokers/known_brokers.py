"""Node ids and addresses of brokers as plain data, and the state file that holds them (``cluster.state``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from config.brokers import MAX_NODE_ID
from config.files import read_file
from config.units import MAX_HOST_LENGTH, MAX_PORT
from proxy.runtime.files import write_atomically


class NotUsableError(ValueError):
    """A state file that is unusable; the text says why."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("is not printable")
    return text


@dataclass(frozen=True, slots=True, order=True)
class KnownBroker:
    """A broker and its advertised address, as the state file takes them."""

    node_id: Annotated[int, Field(ge=0, le=MAX_NODE_ID)]
    host: Annotated[str, Field(min_length=1, max_length=MAX_HOST_LENGTH), AfterValidator(_printable)]
    port: Annotated[int, Field(ge=1, le=MAX_PORT)]

    @property
    def can_be_kept(self) -> bool:
        """Whether the state file takes it: brokers may advertise unusable addresses."""
        return 0 < len(self.host) <= MAX_HOST_LENGTH and self.host.isprintable() and 1 <= self.port <= MAX_PORT


@dataclass(frozen=True, slots=True)
class KnownBrokers:
    """The brokers of one route, by node id."""

    bootstrap: tuple[
        Annotated[str, Field(min_length=1, max_length=MAX_HOST_LENGTH + 8), AfterValidator(_printable)], ...
    ]
    cluster_id: Annotated[str, Field(max_length=255), AfterValidator(_printable)]
    """The id in Metadata; "" if there was none."""
    brokers: tuple[KnownBroker, ...]


class _File(BaseModel):
    model_config = ConfigDict(strict=True)
    version: Literal[1] = 1
    routes: tuple[KnownBrokers, ...]


def read(path: Path) -> Sequence[KnownBrokers]:
    """Return the content of a state file. Raises NotUsableError and OSError."""
    try:
        return _File.model_validate_json(read_file(path)).routes
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise NotUsableError("it is not JSON") from None
        at = ".".join(map(str, first["loc"]))
        raise NotUsableError(f"it does not have the expected form ({at}: {first['msg']})") from None


def write(path: Path, known: Sequence[KnownBrokers]) -> None:
    """Write a state file atomically. Raises OSError."""
    write_atomically(path, _File(routes=tuple(known)).model_dump_json(indent=1) + "\n")
