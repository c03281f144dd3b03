"""The format of ``quotas.json``: cases of several kinds, each documented in the file's own ``kinds``."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from quotas.engine import Bound, Engine, Window
from quotas.entities import Default, Entity, Name
from quotas.kinds import QuotaKind
from quotas.names import sanitise
from quotas.policy import Policy
from quotas.rate import Rate
from quotas.throttle import clamp_ms, throttle_ms
from quotas.token_bucket import TokenBucket
from tests.conformance.model import Failure, Outcome, Skipped, attempt
from tests.reference import alter, client_quotas, connections, display, wire, zookeeper

Case = Mapping[str, Any]
Answers = Iterator[object]
"""A kind yields one answer, or several where more than one is right; the case passes if any is as expected."""


@dataclass(frozen=True, slots=True)
class Json:
    """An answer that the file gives as JSON text and that is compared by value, not byte for byte."""

    value: object


class UnknownMemberError(Exception):
    """A case says something that its kind does not document: never silently passed over."""


# What the kinds ask of the code, in the order of the file's ``kinds``.


def rate(case: Case) -> Answers:
    inputs = case["inputs"]
    sampled = Rate(Window(inputs["samples"], inputs["window_ms"]))
    measures: list[object] = []
    for event in inputs["events"]:
        match event:
            case {"t": t, "record": value}:
                sampled.record(value, t)
            case {"t": t, "measure": True}:
                sampled.purge(t)
                observed, window_ms = sampled.observe(t)
                measures.append({"t": t, "rate": observed, "window_ms": window_ms})
            case _:
                raise UnknownMemberError(f"event {event}")
    yield measures


def throttle(case: Case) -> Answers:
    inputs = case["inputs"]
    yield {"throttle_ms": [charged for charged, _ in _throttled(inputs)]}
    # Beyond int32 Kafka wraps; Sluice must then be at its clamp, and the 64-bit time must be Kafka's.
    both = list(_throttled(inputs))
    if all(charged == clamp_ms(raw) for charged, raw in both):
        yield {"throttle_ms": [client_quotas.wrap_ms(raw) for _, raw in both]}


def _throttled(inputs: Case) -> Iterator[tuple[int, int]]:
    """Yield per record event the throttle time that the hot path gives, and the 64-bit one that Kafka would have."""
    charged, plain = (Rate(_window(inputs), inputs["quota"], inputs.get("cap_ms")) for _ in range(2))
    for event in inputs["events"]:
        match event:
            case {"t": t, "record": value}:
                plain.record(value, t)
                yield charged.charge(value, t), plain.excess_ms(t)
            case {"t": t, "record_no_throttle": value}:
                charged.record(value, t)
                plain.record(value, t)
            case {"t": t, "unrecord": value}:
                charged.record(-value, t)
                plain.record(-value, t)
            case {"set_quota": limit}:
                charged.set_limit(limit)
                plain.set_limit(limit)
            case _:
                raise UnknownMemberError(f"event {event}")


def formula(case: Case) -> Answers:
    yield [
        throttle_ms(float(row["observed"]), float(row["quota"]), row["window_ms"], row.get("cap_ms"))
        for row in case["inputs"]
    ]


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
            _window(row), row.get("quota"), row["max_bytes"], row["min_bytes"], broker_max
        )
        answers.append(
            {
                "max_value_in_window": sizes.max_value_in_window,
                "max_bytes": sizes.max_bytes,
                "min_bytes": sizes.min_bytes,
            }
        )
    yield answers


class ProduceQuotas:
    """An engine whose produce quotas are set one by one, as kafka-configs.sh does."""

    def __init__(self, window: Window) -> None:
        self._engine = Engine(Policy(), window)
        self._limits: dict[Entity, float] = {}

    def set(self, row: Case) -> None:
        """Set the limit of ``row``'s entity, or remove it; a removal puts the level in use, even of nothing."""
        entity = _entity(row)
        if row["limit"] is None:
            self._apply({**self._limits, entity: 1.0})
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = row["limit"]
        self._apply(self._limits)

    def resolve(self, client: Case) -> Bound:
        user, client_id = client.get("user") or "", client.get("client") or ""
        return self._engine.resolve(user, client_id, QuotaKind.PRODUCER_BYTE_RATE, 0)

    def _apply(self, limits: Mapping[Entity, float]) -> None:
        kind = QuotaKind.PRODUCER_BYTE_RATE
        self._engine.apply(Policy({entity: {kind: limit} for entity, limit in limits.items()}), 0)


def precedence(case: Case) -> Answers:
    inputs = case["inputs"]
    quotas = ProduceQuotas(Window())
    for row in inputs["quotas"]:
        quotas.set(row)
    answers: list[object] = []
    for query in inputs["queries"]:
        bound = quotas.resolve(query)
        # With no level in use nothing is counted and the engine has no tags; Kafka shows these.
        user_tag, client_tag = (bound.user, bound.client_id) if inputs["quotas"] else ("", query.get("client") or "")
        answers.append({"user_tag": sanitise(user_tag), "client_tag": client_tag, "limit": bound.limit})
    yield answers


def precedence_timeline(case: Case) -> Answers:
    inputs = case["inputs"]
    quotas = ProduceQuotas(_window(inputs))
    uses: list[object] = []
    for step in inputs["steps"]:
        match step:
            case {"set": row}:
                quotas.set(row)
            case {"use": use}:
                bound = quotas.resolve(use)
                delay_ms = bound.charge(use["bytes"], 0)
                uses.append({"limit": bound.limit, "throttled": delay_ms > 0, "throttle_ms": delay_ms})
            case _:
                raise UnknownMemberError(f"step {step}")
    yield uses


def token_bucket(case: Case) -> Answers:
    inputs = case["inputs"]
    bucket = TokenBucket(_window(inputs), inputs["quota"])
    tokens: list[object] = []
    for event in inputs["events"]:
        match event:
            case {"t": t, "record": value}:
                bucket.record(value, t)
            case {"t": t, "measure": True}:
                tokens.append(bucket.tokens(t))
            case {"set_quota": limit}:
                bucket.set_limit(limit)
            case _:
                raise UnknownMemberError(f"event {event}")
    yield tokens


def mutation(case: Case) -> Answers:
    inputs = case["inputs"]
    bucket = None if inputs["quota"] is None else TokenBucket(_window(inputs), inputs["quota"])
    answers: list[object] = []
    for request in inputs["requests"]:
        quota = client_quotas.Mutations(bucket, strict=request["strict"])
        accepted = [quota.record(mutations, t) for t, mutations in request["records"]]
        answers.append(
            {"accepted": accepted, "throttle_ms": [quota.throttle_ms(t) for t in request.get("read_throttle_at", [])]}
        )
    yield answers


def connection(case: Case) -> Answers:
    config = case["inputs"]["config"]
    quotas = connections.ConnectionQuotas(
        Window(config.get("samples", 11), int(config.get("window_s", 1) * 1000)),
        config["listeners"],
        config.get("inter_broker"),
        config.get("broker_rate"),
        config.get("listener_rates") or {},
    )
    yield [answer for event in case["inputs"]["events"] for answer in _connection_event(quotas, event)]


def _connection_event(quotas: connections.ConnectionQuotas, event: Case) -> Iterator[object]:
    match event:
        case {"t": t, "accept": [listener, ip]}:
            yield _accepted(quotas.accept(listener, ip, t))
        case {"t": t, "measure": name}:
            yield {"rate": quotas.rate(name, t)}
        case {"set_ip": ip, "rate": limit}:
            quotas.set_ip_rate(ip, limit)
        case {"set_broker_rate": limit}:
            quotas.set_broker_rate(limit)
        case {"set_listener_rate": [listener, limit]}:
            quotas.set_listener_rate(listener, limit)
        case _:
            raise UnknownMemberError(f"event {event}")


def _accepted(outcome: connections.Accepted | connections.IpThrottled) -> object:
    answer: dict[str, object] = {"result": "accepted", "wait_ms": outcome.wait_ms, "at": outcome.at}
    if isinstance(outcome, connections.IpThrottled):
        throttled = {"ip_throttle_ms": outcome.ip_throttle_ms, "close_at": outcome.close_at}
        answer |= {"result": "ip_throttled", **throttled}
    return answer


def sanitised_names(case: Case) -> Answers:
    yield [{"sanitised": sanitise(name), "jmx": display.jmx(name)} for name in case["inputs"]]


def zk(case: Case) -> Answers:
    match case["inputs"]:
        case {"notifications": list(texts)}:
            yield [_notified(text) for text in texts]
        case list(rows):
            yield [
                {
                    "path": f"/config/{zookeeper.entity_path(_entity(row))}",
                    "node": Json(zookeeper.node(row["props"])),
                    "notification": Json(zookeeper.notification(_entity(row))),
                }
                for row in rows
            ]
        case other:
            raise UnknownMemberError(f"inputs {other}")


def _notified(text: str) -> object:
    try:
        changed = zookeeper.read_notification(text)
    except zookeeper.BadNotificationError:
        return {"error": True}
    return {"ignored": True} if changed is None else {"root": changed.root, "entity": changed.entity}


def alter_validation(case: Case) -> Answers:
    inputs = case["inputs"]
    if inputs["mode"] not in {"kraft", "zk"}:
        raise UnknownMemberError(f"mode {inputs['mode']}")
    yield ["NONE" if _refusal(inputs["mode"], row) is None else "INVALID_REQUEST" for row in inputs["rows"]]


def _refusal(mode: str, row: Case) -> str | None:
    entity = {dimension: _name(name) for dimension, name in row["entity"].items()}
    operations = [
        (op["key"], None if op.get("remove") or op["value"] is None else float(op["value"])) for op in row["ops"]
    ]
    return alter.refusal(mode, entity, operations, resolves=row.get("resolves", True))


def on_the_wire(case: Case) -> Answers:
    fields = [wire.throttle_field(row["api"], row["version"]) for row in case["inputs"]]
    yield [
        {"has_field": field.position is not None, "position": field.position, "client_obeys": field.client_obeys}
        for field in fields
    ]


def mute(case: Case) -> Answers:
    yield [{"reads_resume_at": client_quotas.reads_resume_at(**row)} for row in case["inputs"]]


def number_format(case: Case) -> Answers:
    yield [display.java_double(float(value)) for value in case["inputs"]]


KINDS: dict[str, Callable[[Case], Answers]] = {
    "rate": rate,
    "throttle": throttle,
    "formula": formula,
    "combined": combined,
    "fetch_cap": fetch_cap,
    "precedence": precedence,
    "precedence_timeline": precedence_timeline,
    "token_bucket": token_bucket,
    "mutation": mutation,
    "connection": connection,
    "sanitise": sanitised_names,
    "zk": zk,
    "alter_validation": alter_validation,
    "wire": on_the_wire,
    "mute": mute,
    "number_format": number_format,
}


def run(document: dict[str, Any]) -> Iterator[tuple[str, Outcome]]:
    """Yield title and outcome of every case."""
    for case in document["cases"]:
        case_id = str(case.get("id"))
        title = f"{case_id} {case.get('kind')}: {case.get('name', '')}"
        yield title, attempt(case_id, case.get("expected"), partial(run_case, case_id, case))


def run_case(case_id: str, case: Case) -> Outcome:
    """Run one case; it fails if no answer of the code is among the answers that the file accepts."""
    kind = KINDS.get(case["kind"])
    if kind is None:
        return Failure(case_id, f"one of the kinds {', '.join(KINDS)}", case["kind"], "unknown case kind")
    inputs = case["inputs"]
    algorithm = inputs.get("algo", "3.8") if isinstance(inputs, dict) else "3.8"
    if algorithm == "3.7":
        return Skipped(case_id, "the sample ring of Kafka 3.7 and earlier; Sluice has that of 3.8")
    if algorithm != "3.8":
        raise UnknownMemberError(f"algo {algorithm}")
    accepted = case.get("accept_any_of", [case["expected"]])
    difference = None
    for got in kind(case):
        for expected in accepted:
            where = _difference(expected, got, TOLERANCES.get(case["kind"], EXACT))
            if where is None:
                return None
            difference = difference or Failure(case_id, expected, got, where)
    return difference


# How far an answer may be from the expected number; what is named in _ms, and every int, is compared exactly.
Close = Callable[[float, float], bool]
EXACT: Close = partial(math.isclose, rel_tol=0.0)
TOLERANCES: dict[str, Close] = {
    "rate": partial(math.isclose, rel_tol=1e-9),
    "connection": partial(math.isclose, rel_tol=1e-9, abs_tol=1e-12),
    "fetch_cap": partial(math.isclose, rel_tol=1e-9),
    "token_bucket": partial(math.isclose, rel_tol=0.0, abs_tol=1e-6),
}


def _difference(expected: object, got: object, close: Close, where: str = "") -> str | None:
    """Return where ``got`` first differs from ``expected``, None if nowhere. Members not expected are ignored."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected:
        pairs = [(f".{key}", value, got.get(key)) for key, value in expected.items()]
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = [(f"[{index}]", *pair) for index, pair in enumerate(zip(expected, got, strict=True))]
    else:
        return None if _same(expected, got, close) else f"{where or 'the answer'}: {got!r} instead of {expected!r}"
    differences = (_difference(value, other, close, f"{where}{step}") for step, value, other in pairs)
    return next((difference for difference in differences if difference is not None), None)


def _same(expected: object, got: object, close: Close) -> bool:
    if isinstance(got, Json):
        return isinstance(expected, str) and json.loads(expected) == got.value
    if isinstance(expected, float | int) and isinstance(got, float) and not isinstance(expected, bool):
        return expected == got or close(expected, got)
    return expected == got and isinstance(expected, bool) == isinstance(got, bool)


def _window(inputs: Case) -> Window:
    return Window(inputs.get("samples", 11), int(inputs.get("window_s", 1) * 1000))


def _entity(row: Case) -> Entity:
    return Entity(_name(row.get("user")), _name(row.get("client")), _name(row.get("ip")))


def _name(value: object) -> Name:
    if isinstance(value, dict):
        if value != {"default": True}:
            raise UnknownMemberError(f"name {value}")
        return Default.DEFAULT
    if value is None or isinstance(value, str):
        return value
    raise UnknownMemberError(f"name {value!r}")
