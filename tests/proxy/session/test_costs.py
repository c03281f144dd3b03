"""The dearest message of every API, at every size, before and after a login: nobody waits long for any of it.

What is measured is the CPU time of this thread: of each single call that the loop would make, and of all of them for
each byte. The bounds are generous, for most messages three times and more what an idle machine needs uncompiled; a walk
that is not cut into slices, or that is quadratic, is far beyond them.
"""

import gc
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from struct import pack
from time import thread_time
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from protocol.client_quotas import ALTER, DESCRIBE
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.table import ApiSpec
from proxy.control.quota_admin import QuotaAdmin
from proxy.control.quotas import QuotasInForce
from proxy.edge.quota_requests import QuotaRequests
from proxy.session.serving import COORDINATE, FORWARD, Done, LocalRequest, Served
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, PolicyChange
from quotas.stores.file_store import FileStore
from tests.protocol.encode import encode_frame
from tests.proxy.playbook import Play, authenticate, frame, handshake, handshake_answer
from tests.proxy.session.dearest import bodies
from tests.proxy.session.mutating import Known

pytestmark = [pytest.mark.long, pytest.mark.slow]

MOST_CALL_S = 0.02
"""Of one call, whatever the machine: what nobody is to wait for."""
MOST_TAGS_CALL_S = 0.1
"""Where an answer is walked through, of a call with nothing but tagged fields: no broker sends that (decision 0046)."""
MOST_BYTE_S = 3e-6
MOST_MESSAGE_S = 400e-6
"""Of a message, however short. The dearest is an AlterClientQuotas of 75 bytes that is refused for 18 entities: it
takes 450e-6 uncompiled, and may take 625e-6 with what its bytes are allowed.
"""
MOST_START_S = 0.01
"""The first of its kind may compile a walk."""
_ATTEMPTS = 10
CHUNK_BYTES = 250_000
"""What a transport reads at once."""
SIZES = (64, 8 * 1024, 64 * 1024, 250_000, 1 << 20)
LIMITS = {
    QuotaKind.PRODUCER_BYTE_RATE: 1e9,
    QuotaKind.CONSUMER_BYTE_RATE: 1e9,
    QuotaKind.CONTROLLER_MUTATION_RATE: 1e3,
}


@dataclass
class Course:
    """What one message took."""

    calls: int = 0
    dearest_s: float = 0.0
    total_s: float = 0.0

    def measure(self, call: Callable[[], object]) -> None:
        began_s = thread_time()
        call()
        took_s = thread_time() - began_s
        self.calls += 1
        self.dearest_s = max(self.dearest_s, took_s)
        self.total_s += took_s

    def is_dear(self, size: int, messages: int, most_call_s: float) -> bool:
        most_s = MOST_START_S + messages * MOST_MESSAGE_S + size * MOST_BYTE_S
        return self.dearest_s > most_call_s or self.total_s > most_s

    def __str__(self) -> str:
        return f"{self.dearest_s * 1e3:.1f} ms at once, {self.total_s * 1e3:.1f} ms in {self.calls} calls"


@contextmanager
def quiet() -> Iterator[None]:
    """What the collector does belongs to no message."""
    gc.disable()
    try:
        with capture_logs():
            yield
    finally:
        gc.enable()


def feed(play: Play, data: bytes, side: Callable[[bytes], object]) -> Course:
    """Give a session ``data`` as a transport does, and its turns as the loop does."""
    course = Course()
    for begin in range(0, len(data), CHUNK_BYTES):
        chunk = data[begin : begin + CHUNK_BYTES]
        course.measure(partial(side, chunk))
        while due := [call for call in play.loop._calls if call[0] <= play.loop.now_ms]:
            play.loop._calls.remove(due[0])
            course.measure(due[0][2])  # type: ignore[arg-type]  # a callback
        if play.rejected:
            break
    return course


class Strangers:
    """Answers users who are no admins, at the next turn of the loop, as the worker does."""

    later: Callable[[Callable[[], None]], None]

    def __init__(self) -> None:
        async def apply(policy: Policy) -> PolicyChange:
            raise AssertionError(policy)

        managing = QuotaAdmin(QuotasInForce(FileStore(Path("never-read.yaml")), apply, enabled=True), ())
        self._requests = QuotaRequests(managing.answer, ())

    def most_bytes(self, api_key: int, user: str) -> int:
        return self._requests.most_bytes(ALTER, user)

    def answer(self, request: LocalRequest, done: Done) -> bytes | None:
        self.later(lambda: self._relay_now(request, done))
        return None

    def _relay_now(self, request: LocalRequest, done: Done) -> None:
        work = self._requests._relay(request, done)
        with pytest.raises(StopIteration):
            work.send(None)  # to its end: nothing is waited for


@dataclass
class Stage:
    """Sessions as a proxy has them, but for the loop."""

    authenticated: bool = True
    limited: bool = False

    def play(self) -> Play:
        policy = Policy({Entity(client_id="app"): LIMITS}) if self.limited else None
        strangers = Strangers()
        answerers = dict.fromkeys((DESCRIBE, ALTER), strangers)
        play = Play(policy=policy, authenticated=self.authenticated, answerers=answerers)
        strangers.later = play.loop.later
        rules = play.worker
        rules.partitions = Known()
        rules.request_limit, rules.unauthenticated_request_limit = 100 << 20, 512 << 10
        rules.response_limit, rules.gathered_limit = 256 << 20, 8 << 20
        rules.find_coordinator_limit, rules.mutations_limit = 1 << 20, 256 << 10
        limit = rules.request_limit if self.authenticated else rules.unauthenticated_request_limit
        play.session.requests.splitter.limit = limit
        play.session.answers.splitter.limit = rules.response_limit
        return play


class Case(NamedTuple):
    """Messages of ``size`` bytes together."""

    name: str
    size: int
    run: Callable[[], Course]
    messages: int = 1
    most_call_s: float = MOST_CALL_S


def dear(cases: Iterable[Case]) -> list[str]:
    """Return those that take too much each time: other programs share caches and cores."""
    found = []
    with quiet():
        for case in cases:
            for _ in range(_ATTEMPTS):
                course = case.run()
                if not course.is_dear(case.size, case.messages, case.most_call_s):
                    break
            else:
                found.append(f"{case.name}: {course}")
    return found


def tried(stage: Stage) -> list[Served]:
    """The oldest and the newest version of every API."""
    versions: dict[int, list[Served]] = {}
    for served in stage.play().worker.served.values():
        versions.setdefault(served.spec.api_key, []).append(served)
    return [
        each for served in versions.values() for each in {id(served[0]): served[0], id(served[-1]): served[-1]}.values()
    ]


def header(spec: ApiSpec, correlation_id: int = 1) -> bytes:
    head = pack(">hhi", spec.api_key, spec.api_version, correlation_id)
    if spec.request_header_version == 0:
        return head
    return head + b"\0\3app" + (b"\0" if spec.request_header_version == 2 else b"")


def requests(stage: Stage, size: int) -> Iterator[Case]:
    """Every request of about ``size`` bytes; of short ones as many as come at once, a quarter from the third on."""
    for served in tried(stage):
        is_read = served.on_request not in (FORWARD, COORDINATE)
        found = bodies(served.spec.request_layout, size, distinct=is_read and size < SIZES[-1])
        for parts, (what, body) in zip(chain([1, 1], repeat(4)), found, strict=False):
            if what == "nothing" and size > SIZES[0]:
                continue
            one = frame(header(served.spec) + body)
            number = max(CHUNK_BYTES // parts // len(one), 1)
            name = f"{number} of {served.spec}, {len(one)} bytes, {what}"
            yield Case(name, number * len(one), partial(asked, stage, one * number), number)


def asked(stage: Stage, data: bytes) -> Course:
    play = stage.play()
    return feed(play, data, play.from_client)


def answered(stage: Stage, request: bytes, data: bytes) -> Course:
    play = stage.play()
    play.from_client(request)
    return feed(play, data, play.from_broker)


def answers(stage: Stage, size: int) -> Iterator[Case]:
    """Every answer of about ``size`` bytes."""
    for served in tried(stage):
        spec = served.spec
        (_, body), *_ = bodies(spec.request_layout, 0)
        if spec.api_key == 0:  # with acks=0 there is no answer
            version = spec.api_version
            body = (b"\0" if version >= 9 else b"\xff\xff" if version >= 3 else b"") + b"\0\1" + bytes(10)
        request = frame(header(spec) + body)
        for what, said in bodies(spec.response_layout, size, distinct=bool(served.on_answer) and size < SIZES[-1]):
            data = frame(pack(">i", 1) + b"\0" * spec.response_header_version + said)
            is_walked = served.outline is not None and what.endswith("tagged")
            most_call_s = MOST_TAGS_CALL_S if is_walked else MOST_CALL_S
            name = f"{spec}, {size} bytes, {what}"
            yield Case(name, size, partial(answered, stage, request, data), most_call_s=most_call_s)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(Stage(authenticated=False), id="before login"),
        # Half a minute for the messages that a session with quotas is measured with too.
        pytest.param(Stage(), id="without quotas", marks=pytest.mark.slow),
        pytest.param(Stage(limited=True), id="with quotas"),
    ],
)
def test_no_request_holds_the_loop(stage: Stage, size: int) -> None:
    assert dear(requests(stage, size)) == []


@pytest.mark.parametrize("size", [64 * 1024, 1 << 20])
def test_no_answer_holds_the_loop(size: int) -> None:
    assert dear(answers(Stage(), size)) == []


@pytest.mark.parametrize("key", [CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS])
@pytest.mark.parametrize("refused", [0.0, 0.5, 1.0])
def test_no_change_of_many_topics_holds_the_loop(key: int, refused: float) -> None:
    """All that a request may name, of which some are refused here and all others answered by the broker."""
    spec = max(
        (each.spec for each in Stage().play().worker.served.values() if each.spec.api_key == key),
        key=lambda each: each.api_version,
    )
    number = 5000
    size = 150_000
    (_, body), *_ = [each for each in bodies(spec.request_layout, size, most=number) if each[0] == "topics: distinct"]
    listed = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}[key]
    said = [{"name": f"{each:x}", "num_partitions": -1} for each in range(1, 1 + round(number * (1 - refused)))]
    answer = encode_frame(spec, {listed: said})

    def run() -> Course:
        play = Stage(limited=True).play()
        bound = play.engine.resolve("ANONYMOUS", "app", QuotaKind.CONTROLLER_MUTATION_RATE, 1)
        bound.set_limit(max(number * (1 - refused) / 11, 1e-6))
        course = feed(play, frame(header(spec) + body), play.from_client)
        if refused < 1:
            back = feed(play, answer, play.from_broker)
            course = Course(
                course.calls + back.calls, max(course.dearest_s, back.dearest_s), course.total_s + back.total_s
            )
            assert not play.session.in_flight
        assert not play.rejected
        return course

    assert dear([Case(f"{spec}, {refused:.0%} refused", len(body), run)]) == []


def nested(size: int) -> bytes:
    return b"[" * (size // 2) + b"]" * (size // 2)


def jwt(payload: bytes) -> bytes:
    head, body = (urlsafe_b64encode(each).rstrip(b"=") for each in (b'{"alg":"none"}', payload))
    return b"n,,\1auth=Bearer " + head + b"." + body + b".\1\1"


TOKENS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "a long name": ("PLAIN", lambda size: b"\0" + b"a" * size + b"\0x"),
    "many separators": ("PLAIN", bytes),
    "many attributes": ("SCRAM-SHA-256", lambda size: b"n,,n=a," + b"r=x," * (size // 4)),
    "escapes": ("SCRAM-SHA-512", lambda size: b"n,,n=" + b"=2C" * (size // 3) + b",r=x"),
    "many claims": (
        "OAUTHBEARER",
        lambda size: jwt(b'{"sub":"alice"' + b"".join(b',"%x":1' % each for each in range(size // 14)) + b"}"),
    ),
    "a deep claim": ("OAUTHBEARER", lambda size: jwt(b'{"sub":' + nested(size * 3 // 4 - 100) + b"}")),
    "a long number": ("OAUTHBEARER", lambda size: jwt(b'{"sub":' + b"9" * (size * 3 // 4 - 100) + b"}")),
    "many extensions": ("OAUTHBEARER", lambda size: b"n,,\1" + b"a=b\1" * (size // 4) + b"\1"),
    "a deep structure": ("GSSAPI", lambda size: b"\x60\x84" + pack(">i", size) + b"\x60\x80" * (size // 2)),
    "nothing known": ("AWS_MSK_IAM", lambda size: b'{"a":' + nested(size - 10) + b"}"),
    "many members": (
        "AWS_MSK_IAM",
        lambda size: b"{" + b",".join(b'"%x":"%x"' % (each, each) for each in range(size // 14)) + b"}",
    ),
}


@pytest.mark.parametrize("size", [64, 8 * 1024, 64 * 1024, 500_000])
@pytest.mark.parametrize("what", TOKENS)
def test_no_token_holds_the_loop(what: str, size: int) -> None:
    mechanism, make = TOKENS[what]
    data = authenticate(2, make(size))

    def run() -> Course:
        play = Stage(authenticated=False).play()
        play.from_client(handshake(1, mechanism))
        play.from_broker(handshake_answer(1))
        return feed(play, data, play.from_client)

    assert dear([Case(what, len(data), run)]) == []
