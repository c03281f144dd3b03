"""The kinds of ``quotas.json`` that ask what a broker or a tool does: answered by the reference model."""

from collections.abc import Iterator

import orjson

from quotas.mutations import Ruling
from quotas.names import sanitise
from quotas.numbers import java_double
from quotas.stores.zookeeper import tree
from quotas.token_bucket import TokenBucket
from tests.conformance.cases import Answers, Case, Json, UnknownMemberError, entity_of, name_of, window_of
from tests.reference import alter, client_quotas, display, wire


def combined(case: Case) -> Answers:
    for narrow in client_quotas.NARROWINGS:
        config = case["inputs"]["config"]
        kinds = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        producer, consumer, request = (config.get(kind) for kind in kinds)
        client = client_quotas.Client(producer, consumer, request, narrow)
        yield [answer for event in case["inputs"]["events"] for answer in _combined_event(client, event)]


def _combined_event(client: client_quotas.Client, event: Case) -> Iterator[object]:
    match event:
        case {"op": "produce", "t": t, "size": size}:
            verdict = client.produce(size, event.get("io_ns", 0), event.get("acks", 1), t)
            empty = {}
        case {"op": "fetch", "t": t, "size": size}:
            verdict = client.fetch(size, event.get("io_ns", 0), t)
            empty = {"empty_response": verdict.throttle_ms > 0}
        case {"network_ns": elapsed_ns, "t": t} if "op" not in event:
            client.network(elapsed_ns, t)
            return
        case _:
            raise UnknownMemberError(f"event {event}")
    yield {
        "bandwidth_ms": verdict.bandwidth_ms,
        "request_ms": verdict.request_ms,
        "throttle_ms": verdict.throttle_ms,
        "charged_to": verdict.charged_to,
        **empty,
    }


def fetch_cap(case: Case) -> Answers:
    answers: list[object] = []
    for row in case["inputs"]:
        broker_max = row.get("broker_fetch_max_bytes", client_quotas.BROKER_FETCH_MAX_BYTES)
        sizes = client_quotas.fetch_sizes(
            window_of(row), row.get("quota"), row["max_bytes"], row["min_bytes"], broker_max
        )
        answers.append(
            {
                "max_value_in_window": sizes.max_value_in_window,
                "max_bytes": sizes.max_bytes,
                "min_bytes": sizes.min_bytes,
            }
        )
    yield answers


def mutation(case: Case) -> Answers:
    inputs = case["inputs"]
    bucket = None if inputs["quota"] is None else TokenBucket(window_of(inputs), inputs["quota"])
    answers: list[object] = []
    for request in inputs["requests"]:
        quota = Ruling([] if bucket is None else [bucket], strict=request["strict"])
        accepted = [quota.accepts(mutations, t) for t, mutations in request["records"]]
        answers.append(
            {"accepted": accepted, "throttle_ms": [quota.throttle_ms(t) for t in request.get("read_throttle_at", [])]}
        )
    yield answers


def sanitised_names(case: Case) -> Answers:
    yield [{"sanitised": sanitise(name), "jmx": display.jmx(name)} for name in case["inputs"]]


def zk(case: Case) -> Answers:
    match case["inputs"]:
        case {"notifications": list(texts)}:
            yield [_notified(text) for text in texts]
        case list(rows):
            yield [
                {
                    "path": (path := tree.path_of(entity_of(row))),
                    "node": Json(orjson.loads(tree.node_of(row["props"]))),
                    "notification": Json(orjson.loads(tree.notification_of(path))),
                }
                for row in rows
            ]
        case other:
            raise UnknownMemberError(f"inputs {other}")


def _notified(text: str) -> object:
    try:
        changed = tree.read_notification(text.encode())
    except tree.NotificationError:
        return {"error": True}
    if changed is None:
        return {"ignored": True}
    root, _, entity = changed.removeprefix(f"{tree.CONFIG}/").partition("/")
    return {"root": root, "entity": entity}


def alter_in_zookeeper_mode(rows: list[Case]) -> Answers:
    yield ["NONE" if _refusal(row) is None else "INVALID_REQUEST" for row in rows]


def _refusal(row: Case) -> str | None:
    entity = {dimension: name_of(name) for dimension, name in row["entity"].items()}
    return alter.refusal("zk", entity, ops_of(row), resolves=row.get("resolves", True))


def ops_of(row: Case) -> list[tuple[str, float | None]]:
    """Return what is asked for of each key, None to remove it."""
    return [(op["key"], None if op.get("remove") or op["value"] is None else float(op["value"])) for op in row["ops"]]


def on_the_wire(case: Case) -> Answers:
    fields = [wire.throttle_field(row["api"], row["version"]) for row in case["inputs"]]
    yield [
        {"has_field": field.position is not None, "position": field.position, "client_obeys": field.client_obeys}
        for field in fields
    ]


def mute(case: Case) -> Answers:
    yield [{"reads_resume_at": client_quotas.reads_resume_at(**row)} for row in case["inputs"]]


def number_format(case: Case) -> Answers:
    yield [java_double(float(value)) for value in case["inputs"]]
