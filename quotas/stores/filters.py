"""Filters of configured quotas, as in DescribeClientQuotas (ClientQuotasImage.describe)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.names import configured_as
from quotas.networks import canonical_ip
from quotas.policy import Policy


class Specified(Enum):
    """Matches any entity that has the dimension, including the default."""

    ANY = "<any>"


Wanted = str | Default | Specified
"""A name, the default entity, or any."""

_DIMENSIONS = ("user", "client-id", "ip")


class FilterError(ValueError):
    """A filter that Kafka refuses, with Kafka's message."""


class UnknownTypeError(FilterError):
    """An unknown type of entity: Kafka answers UNSUPPORTED_VERSION."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A match per dimension (user, client-id, ip); all of them must match. An empty filter matches everything.

    ``strict``: an entity with further dimensions does not match, so that an empty strict filter matches nothing.
    """

    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    strict: bool = False

    @classmethod
    def of(cls, components: Sequence[tuple[str, Wanted]], *, strict: bool) -> "Filter":
        """Create a filter. Raises FilterError."""
        wanted: dict[str, Wanted] = {}
        for dimension, match in components:
            if not dimension:
                raise FilterError("Invalid empty entity type.")
            if dimension in wanted:
                raise FilterError(f"Entity type {dimension} cannot appear more than once in the filter.")
            if dimension not in _DIMENSIONS:
                raise UnknownTypeError(f"Unsupported entity type {dimension}")
            wanted[dimension] = match
        if "ip" in wanted and len(wanted) > 1:
            raise FilterError(
                "Invalid entity filter component combination. IP filter component should not be used with "
                "user or clientId filter component."
            )
        return cls(wanted, strict)

    def select(self, policy: Policy) -> Iterator[tuple[Entity, Mapping[QuotaKind, float]]]:
        """Yield the matching quotas, in the order of the policy, without those unknown to Kafka (caps, groups,
        prefixes).
        """
        wanted = {dimension: _as_configured(dimension, match) for dimension, match in self.wanted.items()}
        for entity, limits in policy.limits.items():
            if is_of_kafka(entity) and limits and self._matches(wanted, entity):
                yield entity, limits

    def _matches(self, wanted: Mapping[str, Wanted], entity: Entity) -> bool:
        names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
        for dimension, match in wanted.items():
            name = names[dimension]
            if name is None or not (match is Specified.ANY or name == match):
                return False
        return not self.strict or sum(name is not None for name in names.values()) == len(wanted)


def is_of_kafka(entity: Entity) -> bool:
    """Whether Kafka has such entities: no caps, groups or prefixes."""
    return not (entity.cap or isinstance(entity.user, Group) or isinstance(entity.client_id, Prefix))


def _as_configured(dimension: str, match: Wanted) -> Wanted:
    """Return a name as quotas store it: long ones cut, addresses in canonical form."""
    if not isinstance(match, str):
        return match
    if dimension != "ip":
        return configured_as(match)
    try:
        return canonical_ip(match)
    except ValueError:
        return match
