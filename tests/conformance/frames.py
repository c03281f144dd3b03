"""The format of ``frames.json``: requests, responses, ApiVersions, lenient and malformed input, streams, SASL."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from protocol.api_versions import advertised_limits, intersect, unsupported_version_answer
from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, RESPONSE_HEAD, FrameSplitter, Head
from protocol.headers import client_id, produce_acks, produce_acks_offset, request_body_offset
from protocol.locator import Located, locate, read_throttle, response_body_offset, rewrite
from protocol.overlay import API_VERSIONS, PRODUCE
from protocol.table import SPECS, ApiSpec, key_version
from proxy.identity.principal import is_pseudo
from quotas.entities import ANONYMOUS
from tests.conformance.cases import EXACT, Case, difference
from tests.conformance.model import Failure, Outcome, attempt
from tests.proxy.playbook import Play

Facts = dict[str, object]

DEFAULT_MAX_SIZE: Final = 104_857_600
NOT_FOR_US: Final = ("client_id_also_ok", "policy", "answer", "answer_hex_if_max_4")
"""Members of ``expect`` that are not facts of a frame: how they are met is said where they are read."""


def run(document: dict[str, Any]) -> Iterator[tuple[str, Outcome]]:
    """Yield ``(case id, outcome)`` for every case of the file, in order."""
    for member, check in CHECKS.items():
        for case in document.get(member, ()):
            yield case["id"], attempt(case["id"], case.get("expect"), partial(check, case))


# ---------------------------------------------------------------------------------------------- what is read of a frame


class Requests:
    """One direction of a connection, read as a session reads it: in chunks, holding back what is incomplete."""

    def __init__(self, limit: int) -> None:
        self._splitter = FrameSplitter(REQUEST_HEAD, limit)
        self.heads: list[Head] = []
        self.facts: list[Facts] = []

    @property
    def is_at_border(self) -> bool:
        return not self._splitter.remaining and not self._splitter.held_bytes

    def feed(self, data: bytes) -> None:
        """Take a chunk; what is told of a frame is told once its header is there. Raises ProtocolError."""
        chunk, position, heads = self._splitter.split(data)
        for head in heads:
            facts = request_facts(head, chunk, position)
            if facts is None:
                self._splitter.hold(chunk, position, len(chunk) - position + 1)
                return
            self.heads.append(head)
            self.facts.append(facts)
            position += 4 + head[0]


def request_facts(head: Head, data: bytes, start: int) -> Facts | None:
    """Tell what a request's header says; None if it is not complete in ``data``. Offsets count from ``start``."""
    size, number, correlation_id, _ = head
    spec = request_spec(number)
    end = start + 4 + size
    body = request_body_offset(spec, data, start, end)
    if body < 0:
        return None
    facts: Facts = {
        "api_key": spec.api_key,
        "api_version": number & 0xFFFF,
        "correlation_id": correlation_id,
        "client_id": client_id(spec, data, start),
        "request_header_version": spec.request_header_version,
        "response_header_version": spec.response_header_version,
        "body_offset": body - start,
        "size": size,
        "expects_response": True,
    }
    if spec.api_key == PRODUCE:
        acks = produce_acks(spec, data, body, end)
        if acks is None:
            return None
        offset = produce_acks_offset(spec, data, body, end) - start
        facts |= {"acks": acks, "acks_offset": offset, "expects_response": acks != 0}
    return facts


def request_spec(number: int) -> ApiSpec:
    """Return what is known of a request; an ApiVersions newer than the table has its newest header (KIP-511)."""
    newest = key_version(API_VERSIONS, advertised_limits()[API_VERSIONS][1])
    if newest < number < key_version(API_VERSIONS, 0x8000):
        number = newest
    spec = SPECS.get(number)
    if spec is None:
        raise ProtocolError(Cause.UNKNOWN_API, f"api key {number >> 16} version {number & 0xFFFF}")
    return spec


def response_facts(spec: ApiSpec, frame: bytes) -> Facts:
    """Tell what is found in a response that has been taken in whole. Raises ProtocolError."""
    located = locate(spec, frame)
    throttle_ms = read_throttle(spec, frame)
    return {
        "correlation_id": RESPONSE_HEAD.unpack_from(frame)[1],
        "response_header_version": spec.response_header_version,
        "body_offset": response_body_offset(spec, frame, 0),
        "throttle": None if throttle_ms is None else {"offset": located.throttle_offset, "value": throttle_ms},
        "endpoints": list(endpoints(spec, located)),
    }


def endpoints(spec: ApiSpec, located: Located) -> Iterator[Facts]:
    for index, endpoint in enumerate(located.endpoints):
        yield {
            "path": f"{spec.endpoint_path}.{index}" if spec.endpoint_path else "",
            "node_id": endpoint.node_id,
            "host": endpoint.host.decode("utf-8", "replace"),
            "port": endpoint.port,
            "id_offset": endpoint.id_offset,
            "host_offset": endpoint.host_offset,
            "port_offset": endpoint.port_offset,
        }


# ------------------------------------------------------------------------------------------------------------ the cases


def request(case: Case) -> Outcome:
    expect = case["expect"]
    if "policy" in expect:
        return policy(case)
    requests = Requests(case.get("max_size", DEFAULT_MAX_SIZE))
    requests.feed(bytes.fromhex(case["hex"]))
    if len(requests.facts) != 1 or not requests.is_at_border:
        return Failure(case["id"], "one whole frame", requests.facts)
    facts = requests.facts[0]
    if facts["client_id"] == expect.get("client_id_also_ok"):
        facts["client_id"] = expect["client_id"]
    if facts["client_id"] == "" and expect.get("client_id", "") is None:
        facts["client_id"] = None  # the broker makes no difference
    return differing(case["id"], expect, facts) or answer(case)


def answer(case: Case) -> Outcome:
    """Compare our own answer to a version that is too new: the highest version that is ours ends it."""
    expected = case["expect"].get("answer_hex_if_max_4")
    if expected is None:
        return None
    newest = advertised_limits()[API_VERSIONS][1]
    got = unsupported_version_answer(case["expect"]["correlation_id"], newest).hex()
    return None if got == f"{expected[:-4]}{newest:04x}" else Failure(case["id"], expected, got)


def policy(case: Case) -> Outcome:
    """We close on what is not in the table, as a broker does; what is before the client-id must be readable."""
    splitter = FrameSplitter(REQUEST_HEAD, DEFAULT_MAX_SIZE)
    _, _, [(_, number, correlation_id, _)] = splitter.split(bytes.fromhex(case["hex"]))
    expect = {name: value for name, value in case["expect"].items() if name != "client_id"}
    got: Facts = {"api_key": number >> 16, "api_version": number & 0xFFFF, "correlation_id": correlation_id}
    if number in SPECS:
        return Failure(case["id"], "refused", "in the table")
    return differing(case["id"], expect, got)


def response(case: Case) -> Outcome:
    spec = SPECS[key_version(case["api_key"], case["api_version"])]
    frame = bytes.fromhex(case["hex"])
    failure = differing(case["id"], case["expect"], response_facts(spec, frame))
    change = case.get("rewrite")
    if failure is not None or change is None:
        return failure
    # A broker that is not in the map stays as it is in the vectors; a splice gives it a name that leads nowhere.
    addresses = {each.node_id: (each.host, each.port) for each in locate(spec, frame).endpoints}
    addresses |= {int(node_id): (host.encode(), port) for node_id, (host, port) in change["endpoint_map"].items()}
    got = rewrite(spec, frame, change["set_throttle_ms"], addresses).hex()
    return None if got == change["expect_hex"] else Failure(case["id"], change["expect_hex"], got, "rewrite")


def api_versions(case: Case) -> Outcome:
    spec = SPECS[key_version(API_VERSIONS, case["api_version"])]
    limits = {int(key): (lowest, highest) for key, (lowest, highest) in case["limits"].items()}
    got = intersect(bytes.fromhex(case["hex"]), spec, limits).hex()
    return None if got == case["expect_hex"] else Failure(case["id"], case["expect_hex"], got)


def malformed(case: Case) -> Outcome:
    match case["kind"]:
        case "request":
            return refused(case, read_requests)
        case "response":
            return refused(case, read_response)
        case "response-truncations":
            payload = bytes.fromhex(case["hex"])[4:]
            for length in case["reject_payload_lengths"]:
                cut = {**case, "hex": (length.to_bytes(4, "big") + payload[:length]).hex()}
                failure = refused(cut, read_response)
                if failure is not None:
                    return Failure(case["id"], case["expect"], failure.got, f"{length} bytes of payload")
            return None
        case kind:
            raise ValueError(f"kind {kind}")


def refused(case: Case, read: Callable[[Case], Facts]) -> Failure | None:
    try:
        facts = read(case)
    except ProtocolError:
        return None
    if case["expect"] == "reject-or-null" and (facts["client_id"] == "" or facts.get("acks") == 0):
        return None
    return Failure(case["id"], case["expect"], facts)


def read_requests(case: Case) -> Facts:
    requests = Requests(case.get("max_size", DEFAULT_MAX_SIZE))
    requests.feed(bytes.fromhex(case["hex"]))
    return requests.facts[0] if requests.facts else {"client_id": "still waiting for bytes"}


def read_response(case: Case) -> Facts:
    frame = bytes.fromhex(case["hex"])
    splitter = FrameSplitter(RESPONSE_HEAD, case.get("max_size", DEFAULT_MAX_SIZE))
    _, _, heads = splitter.split(frame)
    if splitter.remaining or splitter.held_bytes:
        return {"frame": "still waiting for bytes"}
    due = case.get("expected_correlation_id", heads[0][1])
    if heads[0][1] != due:
        raise ProtocolError(Cause.CORRELATION_MISMATCH, f"response {heads[0][1]} while {due} is expected")
    spec = SPECS[key_version(case["api_key"], case["api_version"])]
    if spec.api_key == API_VERSIONS:
        intersect(frame, spec, advertised_limits())
    return response_facts(spec, frame)


def stream(case: Case) -> Outcome:
    data = bytes.fromhex(case["hex"])
    ways = {
        "at once": [data],
        "split": list(pieces(data, case.get("also_feed_split_at", []))),
        "one byte at a time": list(pieces(data, list(range(1, len(data))))),
    }
    for way, chunks in ways.items():
        requests = Requests(case.get("max_size", DEFAULT_MAX_SIZE))
        for chunk in chunks:
            requests.feed(chunk)
        if len(requests.facts) != len(case["expect_frames"]) or not requests.is_at_border:
            return Failure(case["id"], case["expect_frames"], requests.facts, way)
        for expect, facts in zip(case["expect_frames"], requests.facts, strict=True):
            failure = differing(case["id"], expect, facts)
            if failure is not None:
                return failure
    return None


def pieces(data: bytes, borders: list[int]) -> Iterator[bytes]:
    for start, stop in zip([0, *borders], [*borders, len(data)], strict=True):
        yield data[start:stop]


def differing(case_id: str, expect: Case, facts: Facts) -> Failure | None:
    """Compare what is expected; a member that we know nothing of is a failure too."""
    for name, value in expect.items():
        if name in NOT_FOR_US:
            continue
        if name not in facts:
            return Failure(case_id, value, "nothing known of it", name)
        where = difference(value, facts[name], EXACT, name)
        if where is not None:
            return Failure(case_id, value, facts[name], where)
    return None


# ------------------------------------------------------------------------------------------ conversations of SASL

OTHER_CLAIM: Final = "principal_if_claim_is_"


def sasl(case: Case) -> Outcome:
    """Lead a conversation through a whole session; a second time for a principal expected of another claim."""
    for name in case:
        if name.startswith(OTHER_CLAIM):
            play = Play(authenticated=False, sub_claim=name.removeprefix(OTHER_CLAIM))
            for step in case["steps"]:
                take_step(play, step)
            failure = differing(case["id"], {name: case[name]}, {name: principal(play)})
            if failure is not None:
                return failure
    play = Play(authenticated=False)
    for step in case["steps"]:
        passed = take_step(play, step)
        failure = differing(case["id"], {**told(step), "passed": step["hex"]}, {**facts_of(play), "passed": passed})
        if failure is not None:
            return failure
    return differing(case["id"], told(case), facts_of(play))


def take_step(play: Play, step: Case) -> str:
    """Feed one frame; the hex of what came out on the other side."""
    data = bytes.fromhex(step["hex"])
    return (play.from_client(data) if step["dir"] == "client" else play.from_broker(data)).hex()


def told(said: Case) -> Facts:
    expected = {name: said[name] for name in SASL_FACTS if name in said}
    if str(expected.get("state", "")).startswith("authenticated"):
        expected["state"] = "authenticated"  # what follows is a remark
    return expected


def facts_of(play: Play) -> Facts:
    observer = play.session.sasl
    return {
        "principal": principal(play),
        "state": observer.state.value,
        "session_lifetime_ms": observer.session_lifetime_ms,
        "mechanism": observer.mechanism,
        "token_auth": observer.token_id is not None,
        "token_id": observer.token_id,
    }


def principal(play: Play) -> str | None:
    """As the file has it: null while nobody is known, pseudo principals included."""
    user = play.user
    return None if user == ANONYMOUS or is_pseudo(user) else f"User:{user}"


SASL_FACTS: Final = ("principal", "state", "session_lifetime_ms", "mechanism", "token_auth", "token_id")

CHECKS: Final[dict[str, Callable[[Case], Outcome]]] = {
    "requests": request,
    "responses": response,
    "api_versions": api_versions,
    "lenient": request,
    "malformed": malformed,
    "streams": stream,
    "sasl": sasl,
}
