"""The options of a recommendation."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from analysis.kernel.target import Target
from quotas.entities import Entity


@dataclass(frozen=True, slots=True)
class Choices:
    """How quotas are sized, and which."""

    target: Target
    headroom: float = 0.15
    entities: tuple[str, ...] = ()
    """Patterns with ``*`` and ``?``; empty: all entities."""

    def chosen(self, entity: Entity) -> bool:
        """Whether an entity matches ``--entities``."""
        name = entity.describe()
        return not self.entities or any(fnmatchcase(name, pattern) for pattern in self.entities)
