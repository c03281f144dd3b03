"""Which configured quotas somebody asks for, as DescribeClientQuotas does (ClientQuotasImage.describe)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.names import configured_as
from quotas.policy import Policy
from quotas.stores.alteration import canonical_ip


class Specified(Enum):
    """Any entity that has the dimension, the default included."""

    ANY = "<any>"


Wanted = str | Default | Specified
"""A name, the default entity, or any."""

_DIMENSIONS = ("user", "client-id", "ip")


class FilterError(ValueError):
    """A filter that Kafka refuses, in its own words."""


class UnknownTypeError(FilterError):
    """A type of entity that nobody knows: Kafka says UNSUPPORTED_VERSION."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What is wanted of each dimension (user, client-id, ip); all of them must match. Nothing at all is everything.

    ``strict``: an entity that has other dimensions too does not match, so that a strict filter of nothing is nothing.
    """

    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    strict: bool = False

    @classmethod
    def of(cls, components: Sequence[tuple[str, Wanted]], *, strict: bool) -> "Filter":
        """Return the filter. Raises FilterError."""
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
        """Return the quotas that match, in the order of the policy: Kafka's, not what only Sluice knows (caps, groups,
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
    """Whether Kafka knows such entities: it has no caps, groups and prefixes."""
    return not (entity.cap or isinstance(entity.user, Group) or isinstance(entity.client_id, Prefix))


def _as_configured(dimension: str, match: Wanted) -> Wanted:
    """A name as quotas have it: long ones cut, addresses in one spelling."""
    if not isinstance(match, str):
        return match
    if dimension != "ip":
        return configured_as(match)
    try:
        return canonical_ip(match)
    except ValueError:
        return match
