"""A claim is not a use: what a header announces and nobody sends is neither charged nor billed to the name it bears."""

import json
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.load import produce_request
from tests.harness.sasl import log_in_plain
from tests.harness.secure import SASL, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.identity import USERS
from tests.integration.recorded import Document, totals

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

LIMIT_BYTES_PER_S = 100_000
HEADER_BYTES = 60
CLAIMED_BYTES = 100 << 20
EACH_BYTES = 10 << 20
"""Of many: a broker makes room for as much as is announced."""
FITTING_BYTES = 900_000
"""Of an allowance of ten seconds' worth."""
BEFORE_LOGIN_BYTES = 400_000
CAME_BYTES = 500_000
MANY = 10
HONEST_BYTES = 1000
ANSWER_S = 10.0
SETTLED_S = 0.5
USER = "bob"


@dataclass(frozen=True, slots=True)
class Claim:
    """What strangers send in the name of a victim, and how much of it comes."""

    announced_bytes: int
    came_bytes: int = HEADER_BYTES
    count: int = 1
    stays_open: bool = False
    listener: str = "PLAIN"

    def make(self, address: Address, victim: str, topic: str) -> list[Connection]:
        """Those that stay open."""
        request = produce_request(topic, victim, self.came_bytes + 1000)
        begun = struct.pack(">i", self.announced_bytes) + request[4 : 4 + self.came_bytes]
        found = []
        for _ in range(self.count):
            stranger = Connection(address)
            stranger.send(begun)
            found.append(stranger)
        time.sleep(SETTLED_S)
        for stranger in () if self.stays_open else found:
            stranger.close()
        return found if self.stays_open else []


CLAIMS = {
    "header": Claim(CLAIMED_BYTES),
    "many headers": Claim(EACH_BYTES, count=MANY),
    "part of a body": Claim(CLAIMED_BYTES, came_bytes=CAME_BYTES),
    "open": Claim(EACH_BYTES, count=MANY, stays_open=True),
    "open and fitting": Claim(FITTING_BYTES, count=MANY, stays_open=True),
    "fitting": Claim(FITTING_BYTES, count=MANY),
    "before login": Claim(CLAIMED_BYTES, listener=SASL),
    "fitting before login": Claim(BEFORE_LOGIN_BYTES, count=MANY, listener=SASL),
    "open before login": Claim(BEFORE_LOGIN_BYTES, count=MANY, stays_open=True, listener=SASL),
}


@dataclass(frozen=True, slots=True)
class Damage:
    """What a victim saw that has sent one small request."""

    told_ms: int
    answered_s: float


@dataclass(frozen=True, slots=True)
class Scene:
    damages: dict[str, Damage]
    documents: list[Document]


@pytest.fixture(scope="module")
def scene(secure_cluster: SecureCluster, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    cluster, folder = secure_cluster.cluster, tmp_path_factory.mktemp("usage")
    (node_id,) = cluster.node_ids
    topic = fresh_name("claimed")
    cluster.create_topic(topic)
    listeners = {SASL: {"authentication": "sasl", "cluster": secure_cluster.route(SASL, guarded=False)}}
    settings = {"usage": {"files": {"directory": str(folder), "rotate_after": "500ms"}, "interval": "100ms"}}
    with SluiceProcess(
        cluster.bootstrap, cluster.node_ids, quotas=_quotas(), settings=settings, listeners=listeners
    ) as sluice:
        addresses = {"PLAIN": sluice.broker_addresses[node_id], SASL: sluice.listeners[SASL].brokers[node_id]}
        damages = {}
        for name, claim in CLAIMS.items():
            with ExitStack() as stack:
                for stranger in claim.make(addresses[claim.listener], name, topic):
                    stack.enter_context(stranger)
                damages[name] = _damage(addresses[claim.listener], name, topic, _login(claim))
        assert sluice.stop() == 0
    return Scene(damages, _documents(folder))


@pytest.mark.parametrize("name", CLAIMS)
def test_victim_is_told_no_throttle(scene: Scene, name: str) -> None:
    damage = scene.damages[name]
    print(f"claim, {name}: told {damage.told_ms} ms, answered in {damage.answered_s:.2f} s / 0 ms")
    assert damage.told_ms == 0
    assert damage.answered_s < ANSWER_S / 2


@pytest.mark.parametrize("name", CLAIMS)
def test_victim_is_billed_what_came(scene: Scene, name: str) -> None:
    claim = CLAIMS[name]
    used = len(produce_request("claimed-00", name, HONEST_BYTES))
    came = 0 if claim.listener == SASL else claim.count * claim.came_bytes
    billed = totals(scene.documents, name)["produce_bytes"]
    print(f"claim, {name}: billed {billed} B / {used + came} B")
    assert used - 20 <= billed <= used + came + 20


def _damage(address: Address, victim: str, topic: str, log_in: Callable[[Connection], object]) -> Damage:
    with Connection(address, timeout_s=ANSWER_S) as connection:
        log_in(connection)
        begin_s = time.monotonic()
        try:
            response = connection.exchange(produce_request(topic, victim, HONEST_BYTES))
        except TimeoutError:
            return Damage(-1, ANSWER_S)
        return Damage(struct.unpack(">i", response[-4:])[0], time.monotonic() - begin_s)


def _login(claim: Claim) -> Callable[[Connection], object]:
    if claim.listener == SASL:
        return lambda connection: log_in_plain(connection, USER, USERS[USER])
    return lambda _: None


def _documents(folder: Path) -> list[Document]:
    lines = [line for path in sorted(folder.iterdir()) for line in path.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def _quotas() -> str:
    lines = [f'  - {{entity: {{client-id: "{name}"}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}\n' for name in CLAIMS]
    return "quotas:\n" + "".join(lines)
