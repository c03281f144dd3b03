"""Other people's codecs, as oracles for responses. What neither of them can do is in the vectors or in test_locator.py.

kafka-python drops unknown tags and has no delegation tokens and no group or share APIs newer than its own consumer's.
kio has only the versions that 4.0 kept, raises at unknown tags and drops tags that hold their default value.
Both normalise overlong varints.
"""

import dataclasses
import io
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from kio.index import load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from protocol.table import SPECS, ApiSpec

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # kafka-python reads its schemas by importlib.resources.read_text
    from kafka.protocol.api_header import ResponseClassRegistry

Members = dict[str, Any]


class Oracle(Protocol):
    def knows(self, spec: ApiSpec) -> bool:
        """Tell whether it has this version of the response."""
        ...

    def read(self, spec: ApiSpec, body: bytes) -> tuple[Members, bytes]:
        """Decode a response's body; return its members by Kafka's names, and the body as this oracle encodes them."""
        ...


class KafkaPython:
    """kafka-python's codec, driven by Kafka's own JSON schemas."""

    def knows(self, spec: ApiSpec) -> bool:
        response = ResponseClassRegistry._response_class_registry.get(spec.api_key)
        return response is not None and spec.api_version <= response.max_version

    def read(self, spec: ApiSpec, body: bytes) -> tuple[Members, bytes]:
        response = ResponseClassRegistry._response_class_registry[spec.api_key]
        message = response.decode(body, version=spec.api_version)
        message._header = None  # it refuses to encode what it decoded without this
        return message.to_dict(json=False), bytes(message.encode(version=spec.api_version))


class Kio:
    """kio's codec: dataclasses generated from Kafka's JSON schemas, a native reader and a Python writer."""

    def knows(self, spec: ApiSpec) -> bool:
        name = api_key_map.get(spec.api_key, "")
        return spec.api_version in schema_name_map.get(name, {})

    def read(self, spec: ApiSpec, body: bytes) -> tuple[Members, bytes]:
        schema = load_response_schema(spec.api_key, spec.api_version)
        message, _ = entity_reader(schema)(body, 0)
        written = io.BytesIO()
        entity_writer(schema)(written, message)
        members = dataclasses.asdict(message)
        if "throttle_time" in members:
            members["throttle_time_ms"] = round(members.pop("throttle_time").total_seconds() * 1000)
        return members, written.getvalue()


def known_to(oracle: Oracle, wanted: Callable[[ApiSpec], bool]) -> list[ApiSpec]:
    """Return the versions that an oracle knows and that are wanted."""
    return [spec for spec in SPECS.values() if wanted(spec) and oracle.knows(spec)]
