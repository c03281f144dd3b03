"""The API table: an ApiSpec for every (api key, version), by the number that a request begins with."""

import json
from pathlib import Path
from typing import Final, TypedDict, TypeVar

from protocol.layout import fixed_offset
from protocol.overlay import (
    ADMIN_CLUSTER_ACTIONS,
    BROKER_ADDRESSES,
    CONTROLLER_LISTENERS,
    DESCRIBE_QUORUM,
    OBEYED_FROM,
)

ABSENT: Final = -1
"""``throttle_offset`` of a response without throttle_time_ms: only muting works."""
WALK: Final = -2
"""``throttle_offset`` of a response whose throttle_time_ms follows fields of variable length."""

_THROTTLE: Final = "throttle_time_ms"

Value = TypeVar("Value", int, str)


class ApiSpec:
    """One version of one API; ``number`` is its key in SPECS.

    ``throttle_offset`` counts from the first byte of the response's body; or ABSENT, or WALK. ``obeyed_from`` is the
    first version whose clients obey throttle_time_ms by themselves (KIP-219), None if no version's are known to;
    ``obeyed`` says whether this version's do. ``endpoints``: the response contains broker addresses, at
    ``endpoint_path`` ("" is the root). ``advertised``: clients may be offered this version (not one between brokers,
    not an unstable one, not one with addresses of controllers). The layouts are strings of protocol/layout.py;
    ``flexible`` is the response's.
    """

    __slots__ = (
        "advertised",
        "api_key",
        "api_version",
        "endpoint_path",
        "endpoints",
        "flexible",
        "name",
        "number",
        "obeyed",
        "obeyed_from",
        "request_header_version",
        "request_layout",
        "response_header_version",
        "response_layout",
        "throttle_offset",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        name: str,
        *,
        advertised: bool,
        request_header_version: int,
        response_header_version: int,
        request_layout: str,
        response_layout: str,
    ) -> None:
        self.number = key_version(api_key, api_version)
        self.api_key = api_key
        self.api_version = api_version
        self.name = name
        self.advertised = advertised
        self.request_header_version = request_header_version
        self.response_header_version = response_header_version
        self.request_layout = request_layout
        self.response_layout = response_layout
        self.flexible = response_layout.startswith("~")
        self.throttle_offset = _throttle_offset(response_layout)
        self.obeyed_from: int | None = OBEYED_FROM.get(api_key)
        self.obeyed = self.obeyed_from is not None and self.obeyed_from <= api_version
        self.endpoint_path = _endpoint_path(api_key, response_layout)
        self.endpoints = self.endpoint_path is not None

    def __repr__(self) -> str:
        return f"{self.name} v{self.api_version}"


def key_version(api_key: int, api_version: int) -> int:
    """Return the key of an API version in SPECS, as REQUEST_HEAD unpacks it."""
    return api_key << 16 | api_version


class _Api(TypedDict):
    """A member of api_table.json; versions are given as ``first-last``."""

    key: int
    name: str
    client: bool
    unstable: list[int]
    request_header: dict[str, int]
    response_header: dict[str, int]
    request: dict[str, str]
    response: dict[str, str]


def _throttle_offset(response_layout: str) -> int:
    try:
        offset = fixed_offset(response_layout, _THROTTLE)
    except KeyError:
        return ABSENT
    return WALK if offset is None else offset


def _endpoint_path(api_key: int, response_layout: str) -> str | None:
    for path in BROKER_ADDRESSES.get(api_key, ()):
        if not path or f"{path}:[" in response_layout:
            return path
    return None


def _load(path: Path) -> dict[int, ApiSpec]:
    apis: list[_Api] = json.loads(path.read_text(encoding="utf-8"))
    return {spec.number: spec for api in apis for spec in _versions(api)}


def _versions(api: _Api) -> list[ApiSpec]:
    for_clients = api["client"] or api["key"] in ADMIN_CLUSTER_ACTIONS
    request_header, response_header = _by_version(api["request_header"]), _by_version(api["response_header"])
    request, response = _by_version(api["request"]), _by_version(api["response"])
    return [
        ApiSpec(
            api["key"],
            version,
            api["name"],
            advertised=for_clients
            and version not in api["unstable"]
            and (api["key"] == DESCRIBE_QUORUM or CONTROLLER_LISTENERS not in response[version]),
            request_header_version=request_header[version],
            response_header_version=response_header[version],
            request_layout=request[version],
            response_layout=response[version],
        )
        for version in response
    ]


def _by_version(runs: dict[str, Value]) -> dict[int, Value]:
    versions: dict[int, Value] = {}
    for run, value in runs.items():
        first, _, last = run.partition("-")
        for version in range(int(first), int(last) + 1):
            versions[version] = value
    return versions


SPECS: Final[dict[int, ApiSpec]] = _load(Path(__file__).with_name("api_table.json"))
"""Every known API version by ``api_key << 16 | api_version``, as REQUEST_HEAD unpacks it."""

NAMES: Final[dict[int, str]] = {spec.api_key: spec.name for spec in SPECS.values()}
"""Kafka's name of every known api key."""
