"""KIP-368: brokers end a login after ten seconds; clients log in again in time, under load and under throttle.

A broker closes a connection that goes on without: its client would connect anew, and that is seen. What is throttled
here is throttled for longer than a login lasts, so that only mutes that end in time let it log in again.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.harness.clients.kinds import CONFLUENT, JAVA_2, JAVA_3, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce, Task
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.load import produce_request
from tests.harness.reconnections import Reconnections
from tests.harness.secure import REAUTH, REAUTH_MS, SecureCluster
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.identity import Login, authentications

pytestmark = [pytest.mark.slow]

DURATION_S = 3.5 * REAUTH_MS / 1000
LEAST_LOGINS = 3  # of each connection that lasts so long, the first one too
PACE_BYTES_PER_S = 20_000
# Ten seconds' worth goes at once; a request as large as that is then throttled for ten seconds more.
THROTTLED_BYTES_PER_S = 30_000
BURST_BYTES = 10 * THROTTLED_BYTES_PER_S
FILLED_BYTES = 60_000
# Five requests under way are less than what may go at a deadline: of more, a broker too closes the connection, because
# it reads some of them when the lifetime is over.
RECORD_BYTES = 12_000
RECORDS = 80
MECHANISMS = {
    KAFKA_PYTHON: "PLAIN",
    CONFLUENT: "SCRAM-SHA-512",
    JAVA_2: "SCRAM-SHA-256",
    JAVA_3: "PLAIN",
    JAVA_4: "OAUTHBEARER",
}
"""Of the clients that know KIP-368."""


@pytest.fixture(scope="module")
def guarded(secure_cluster: SecureCluster) -> Iterator[Guarded]:
    listeners = {REAUTH: secure_cluster.listeners()[REAUTH]}
    with guarded_sluice(secure_cluster.cluster, quotas=_quotas(), listeners=listeners) as running:
        yield running


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((CONFLUENT, JAVA_4), marks=pytest.mark.integration, id="one-of-each"),
        pytest.param(tuple(MECHANISMS), marks=pytest.mark.matrix, id="all"),
    ],
)
@pytest.mark.timeout(180)
def test_throttled_clients_reauthenticate_without_losing_a_connection(
    secure_cluster: SecureCluster, guarded: Guarded, kinds: Sequence[ClientKind]
) -> None:
    sluice = guarded.sluice
    failed, succeeded = (authentications(sluice, outcome, REAUTH) for outcome in ("failed", "succeeded"))
    throttled_s = {kind: _throttled_s(guarded, kind) for kind in kinds}
    with ExitStack() as stack:
        clients = _start(secure_cluster, guarded, kinds, stack)
        with Reconnections({name: client.pid for name, client in clients.items()}) as reconnections:
            results = {name: client.result(DURATION_S + 60) for name, client in clients.items()}
    assert {name: result.errors for name, result in results.items() if result.errors} == {}
    assert {results[f"greedy-producer-{kind.name}"].records for kind in kinds} == {RECORDS}
    assert all(_throttled_s(guarded, kind) > throttled_s[kind] + 2 * REAUTH_MS / 1000 for kind in kinds)
    assert authentications(sluice, "failed", REAUTH) == failed
    assert authentications(sluice, "succeeded", REAUTH) - succeeded >= LEAST_LOGINS * len(clients)
    assert reconnections.seen() == {}
    assert guarded.watch.escapes == []


def _start(
    secure: SecureCluster, guarded: Guarded, kinds: Sequence[ClientKind], stack: ExitStack
) -> dict[str, ClientProcess]:
    """Three clients of each kind; all have got something when it returns."""
    clients: dict[str, ClientProcess] = {}
    for kind in kinds:
        for name, task in _tasks(secure, guarded, kind).items():
            clients[f"{name}-{kind.name}"] = stack.enter_context(kind.run(task))
    for name, client in clients.items():
        client.wait_for(lambda client: bool(client.of_kind("progress")), f"progress of {name}")
    return clients


def _tasks(secure: SecureCluster, guarded: Guarded, kind: ClientKind) -> dict[str, Task]:
    """One at its own pace, and two that are throttled."""
    topics = {name: fresh_name(f"{name}-{kind.name}") for name in ("paced-producer", "greedy-producer", "filled")}
    for topic in topics.values():
        secure.cluster.create_topic(topic)
    _fill(secure, topics["filled"])
    whom = {"bootstrap": guarded.sluice.listeners[REAUTH].bootstrap, "security": _login(kind).security(secure)}
    return {
        "paced-producer": Produce(
            **whom,  # type: ignore[arg-type]  # of two types
            client_id="paced",
            topic=topics["paced-producer"],
            duration_s=DURATION_S,
            record_bytes=500,
            rate_bytes_per_s=PACE_BYTES_PER_S,
        ),
        "greedy-producer": Produce(
            **whom,  # type: ignore[arg-type]
            client_id="greedy",
            topic=topics["greedy-producer"],
            records=RECORDS,
            record_bytes=RECORD_BYTES,
            idempotent=True,  # of librdkafka too no more than five under way
        ),
        "greedy-consumer": Consume(
            **whom,  # type: ignore[arg-type]
            client_id="greedy",
            topic=topics["filled"],
            duration_s=DURATION_S,
            partition_fetch_bytes=BURST_BYTES,
        ),
    }


def _fill(secure: SecureCluster, topic: str) -> None:
    with Connection(Address.parse(secure.cluster.bootstrap)) as broker:
        for _ in range(40):
            broker.exchange(produce_request(topic, "fill", FILLED_BYTES))


def _login(kind: ClientKind) -> Login:
    return Login(kind, "SASL", MECHANISMS[kind])


def _throttled_s(guarded: Guarded, kind: ClientKind) -> float:
    return guarded.sluice.metrics().value("sluice_quota_throttle_seconds_total", user=_login(kind).user)


def _quotas() -> str:
    rates = f"producer_byte_rate: {THROTTLED_BYTES_PER_S}, consumer_byte_rate: {THROTTLED_BYTES_PER_S}"
    return "quotas:\n" + "".join(
        f"  - {{entity: {{user: {_login(kind).user}, client-id: greedy}}, {rates}}}\n" for kind in MECHANISMS
    )
