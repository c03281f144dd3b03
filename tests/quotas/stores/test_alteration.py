"""What is taken of a change and what is refused: as Kafka does, by its vectors and the model of a broker."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quotas.entities import Default
from quotas.stores.alteration import Change, Refusal, check
from tests.conformance.cases import name_of
from tests.reference import alter

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "quotas.json").read_text(encoding="utf-8"))
ROWS = [
    (row, expected)
    for case in VECTORS["cases"]
    if case["kind"] == "alter_validation" and case["inputs"]["mode"] == "kraft"
    for row, expected in zip(case["inputs"]["rows"], case["expected"], strict=True)
]

Named = dict[str, str | Default]


@pytest.mark.parametrize(("row", "expected"), ROWS, ids=str)
def test_change_is_refused_as_in_kafka_vectors(row: Mapping[str, object], expected: str) -> None:
    entity, ops = row["entity"], row["ops"]
    assert isinstance(entity, dict)
    assert isinstance(ops, list)
    names: Named = {
        dimension: name for dimension, each in entity.items() if isinstance(name := name_of(each), str | Default)
    }
    change = Change(names, [(op["key"], None if op.get("remove") else float(op["value"])) for op in ops])
    assert isinstance(check(change), Refusal) is (expected == "INVALID_REQUEST")


_NAMES = st.sampled_from(["", "a", "10.0.0.1", "::1", Default.DEFAULT])
_ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id", "ip", "topic", ""]), _NAMES, max_size=2)
_KEYS = st.sampled_from([*alter.CLIENT_KEYS, *alter.IP_KEYS, "nonsense"])
_LIMITS = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-2, 2**31 + 2).map(float), st.just(5.0000005))


@given(_ENTITIES, st.lists(st.tuples(_KEYS, _LIMITS), max_size=3))
def test_change_is_refused_as_by_the_broker_model(entity: Named, ops: Sequence[tuple[str, float | None]]) -> None:
    # What Kafka takes as a fraction of one byte is none here; it compares 2^63 as a double, the model does not.
    assume(all(limit is None or not 0 < limit <= alter.EPSILON for _, limit in ops))
    assume(all(limit != 2.0**63 for _, limit in ops))
    refused = alter.refusal("kraft", entity, ops, resolves=False)
    assert isinstance(check(Change(entity, ops)), Refusal) is (refused is not None)


def test_nan_percentage_and_host_name_are_refused_unlike_kafka() -> None:
    for wrong in (Change({"user": "u"}, [("request_percentage", math.nan)]), Change({"ip": "localhost"}, [])):
        assert isinstance(check(wrong), Refusal)
