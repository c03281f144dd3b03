"""Where a response carries throttle_time_ms, in words, from the API table."""

from dataclasses import dataclass

from protocol.layout import parse_layout
from protocol.table import NAMES, SPECS, ApiSpec, key_version

KEYS = {name: key for key, name in NAMES.items()} | {"ListClientMetricsResources": 74}  # renamed by KIP-1142

# Brokers obey these of the controller (shouldClientThrottle); no client uses them, so the table leaves them out.
OBEYED_BY_BROKERS = {"BrokerRegistration", "BrokerHeartbeat"}


@dataclass(frozen=True, slots=True)
class ThrottleField:
    position: str | None
    client_obeys: bool


def throttle_field(api: str, version: int) -> ThrottleField:
    """Return where and how one API version tells a throttle. Raises KeyError for one that the table does not know."""
    spec = SPECS[key_version(KEYS[api], version)]
    position = _position(spec)
    return ThrottleField(position, position is not None and (spec.obeyed or api in OBEYED_BY_BROKERS))


def _position(spec: ApiSpec) -> str | None:
    names = [field.name for field in parse_layout(spec.response_layout).fields if field.tag is None]
    if "throttle_time_ms" not in names:
        return None
    index = names.index("throttle_time_ms")
    if index == 0:
        return "first"
    if names[index - 1] == "api_keys":
        return "after api_keys array"
    return "last" if index == len(names) - 1 else f"after {names[index - 1]}"
