"""The file that keeps temporary limits over a restart, next to ``cluster.state``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.files import read_file
from proxy.runtime.private_file import write_atomically
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Change, Refusal, check

log = structlog.get_logger("sluice")

_VERSION: Final = 1


class KeptLimit(BaseModel):
    """A limit in the file; ``until_s`` is wall time."""

    model_config = ConfigDict(frozen=True)
    user: str | None
    client_id: str | None
    kind: QuotaKind
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    until_s: Annotated[float, Field(allow_inf_nan=False)]
    who: str

    @property
    def counter(self) -> tuple[Entity, QuotaKind]:
        """Whose limit it is. Raises ValueError."""
        named = {"user": self.user, "client-id": self.client_id}
        checked = check(Change({part: name for part, name in named.items() if name}, ((self.kind, self.limit),)))
        if isinstance(checked, Refusal):
            raise ValueError(str(checked))  # noqa: TRY004  user input
        return checked[0], self.kind


class _Kept(BaseModel):
    version: Annotated[int, Field(ge=_VERSION, le=_VERSION)] = _VERSION
    limits: Sequence[KeptLimit]


def path_beside(state: Path) -> Path:
    """Return the path of the file for a ``cluster.state``: ``brokers.json`` → ``brokers.limits.json``."""
    return state.with_suffix(f".limits{state.suffix}")


def read_limits(path: Path) -> Mapping[tuple[Entity, QuotaKind], KeptLimit]:
    """Return the limits in the file; a file that is not usable is logged, and has none."""
    try:
        kept = _Kept.model_validate_json(read_file(path))
        return {each.counter: each for each in kept.limits}
    except FileNotFoundError:
        return {}
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    except (ValidationError, ValueError):
        why = "it does not have the expected form"
    log.error("file of temporary limits not usable: it is ignored, and rewritten", path=str(path), error=why)
    return {}


def write_limits(path: Path, limits: Sequence[KeptLimit]) -> None:
    """Write the file. A failure is logged: the limits are in force all the same."""
    try:
        write_atomically(path, _Kept(limits=limits).model_dump_json(indent=1) + "\n")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        log.error("temporary limits not kept: a restart would end them", path=str(path), error=why)
