"""Every client by every mechanism: who logs in is held to the quota of his own, who does not is nobody.

All clients work at the same time, each greedy, each under a quota for its user. Rates are taken as in test_rates.py:
from the partition's log at the broker, over whole windows, once the last of them has started.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.harness.clients.kinds import AIOKAFKA, JAVA_0, SECURE_KINDS, ClientKind
from tests.harness.clients.process import ClientProcess, Result
from tests.harness.clients.tasks import Administer, Produce
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.measure import LogMeter
from tests.harness.secure import MTLS, SASL, SASL_TLS, SIGNED, SecureCluster
from tests.harness.sluice import Metrics
from tests.integration.conftest import fresh_name
from tests.integration.identity import ALL, CERTIFICATE, EVERYBODY, SHORT, TOKEN, Login, authentications, taken_for

TIMEOUT_S = 200
LIMIT_BYTES_PER_S = 200_000
MOST, LEAST = 1.05, 0.9  # of the quota
# A window of 3 s: whose quota it is does not depend on its length.
SHORT_WINDOW = {"quotas": {"window": {"samples": 6, "size": "500ms"}}}
WINDOW_S = 3.0
WINDOWS = 5
MEASURED_S = WINDOW_S * (1 + WINDOWS)
LONGEST_S = 90.0  # an upper bound: the clients are asked to stop when all have been measured
# What each client writes to stderr when it is refused, in words of its own. 0.11 does not know SaslAuthenticate, which
# says why; kafka-python loses that answer where the end of the connection comes at once behind it (directly too); and
# aiokafka takes the refusal of a token for a success.
REFUSED = re.compile(
    r"SaslAuthenticationFailed|SaslAuthenticationException|SASL authentication error"
    r"|failed authentication|terminated during authentication|socket disconnected|Unable to update metadata"
)
# Where the broker's refusal is the end of the connection: after raw tokens, and to aiokafka, which does not ask for it.
UNANSWERED = {login for login in ALL if login.kind is JAVA_0 or (login.kind is AIOKAFKA and login.listener == SIGNED)}


@dataclass(frozen=True, slots=True)
class Runs:
    """What one client each did, by the name of its login, and the proxy's metrics at the end."""

    rates: dict[str, float]
    results: dict[str, Result]
    metrics: Metrics


@pytest.fixture(scope="module")
def guarded(secure_cluster: SecureCluster) -> Iterator[Guarded]:
    listeners = secure_cluster.listeners()
    cluster = secure_cluster.cluster
    with guarded_sluice(cluster, quotas=_quotas(), settings=SHORT_WINDOW, listeners=listeners) as running:
        yield running


@pytest.fixture(scope="module")
def runs(secure_cluster: SecureCluster, guarded: Guarded) -> Runs:
    return _run(secure_cluster, guarded, SHORT)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.integration
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("login", SHORT, ids=lambda login: login.name)
def test_user_is_held_to_his_quota(runs: Runs, login: Login) -> None:
    _assert_held(runs, login)


@pytest.mark.matrix
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("kind", SECURE_KINDS, ids=lambda kind: kind.name)
def test_users_of_every_mechanism_are_held_to_their_quotas(
    secure_cluster: SecureCluster, guarded: Guarded, kind: ClientKind
) -> None:
    logins = [login for login in ALL if login.kind is kind]
    runs = _run(secure_cluster, guarded, logins)
    for login in logins:
        _assert_held(runs, login)


def _wrong(logins: Sequence[Login]) -> list[Login]:
    """Those that can be wrong: a certificate is another matter, and an unsecured token of anybody is right."""
    return [
        login
        for login in logins
        if login.mechanism not in {CERTIFICATE, TOKEN}
        and (login.mechanism != "OAUTHBEARER" or login.listener == SIGNED)
    ]


@pytest.mark.integration
@pytest.mark.parametrize("login", _wrong(SHORT), ids=lambda login: login.name)
def test_login_with_wrong_password_is_refused(secure_cluster: SecureCluster, guarded: Guarded, login: Login) -> None:
    _assert_refused(secure_cluster, guarded, login)


@pytest.mark.matrix
@pytest.mark.parametrize("login", [each for each in _wrong(ALL) if each not in SHORT], ids=lambda login: login.name)
def test_login_with_wrong_password_is_refused_by_every_mechanism(
    secure_cluster: SecureCluster, guarded: Guarded, login: Login
) -> None:
    _assert_refused(secure_cluster, guarded, login)


@pytest.mark.integration
def test_addresses_are_those_of_the_listener(secure_cluster: SecureCluster, guarded: Guarded) -> None:
    """A client of one listener is never sent to another, whose security would not be its own."""
    for listener, mechanism in ((SASL, "PLAIN"), (SASL_TLS, "PLAIN"), (MTLS, CERTIFICATE)):
        login = next(each for each in ALL if (each.listener, each.mechanism) == (listener, mechanism))
        at = guarded.sluice.listeners[listener]
        task = Administer(
            bootstrap=at.bootstrap,
            client_id="administrator",
            topic=fresh_name("created"),
            security=login.security(secure_cluster),
        )
        with SECURE_KINDS[-1].run(task) as client:
            assert client.event("admin")["brokers"] == {str(node): str(told) for node, told in at.brokers.items()}
    assert guarded.watch.escapes == []


def _run(secure: SecureCluster, guarded: Guarded, logins: Sequence[Login]) -> Runs:
    with ExitStack() as stack:
        meters, clients = {}, {}
        for login in logins:
            topic = fresh_name(login.name)
            secure.cluster.create_topic(topic)
            meters[login.name] = stack.enter_context(LogMeter(secure.cluster.log_folder(topic)))
            clients[login.name] = stack.enter_context(_producer(secure, guarded, login, topic))
        for name, client in clients.items():
            client.wait_for(lambda _, series=meters[name].series: not series.is_empty(), "its first bytes", LONGEST_S)  # type: ignore[misc]
        begin_s = time.monotonic() + WINDOW_S
        time.sleep(MEASURED_S)
        metrics = guarded.sluice.metrics()  # while every counter is in use: one that is not is forgotten
        for client in clients.values():
            client.ask_to_stop()
        results = {name: client.result() for name, client in clients.items()}
        rates = {n: m.series.rate_by_bursts(begin_s, begin_s + WINDOWS * WINDOW_S, WINDOW_S) for n, m in meters.items()}
        return Runs(rates, results, metrics)


def _producer(secure: SecureCluster, guarded: Guarded, login: Login, topic: str) -> ClientProcess:
    task = Produce(
        bootstrap=guarded.sluice.listeners[login.listener].bootstrap,
        client_id=login.kind.name,
        topic=topic,
        duration_s=LONGEST_S,
        record_bytes=2_000,
        niceness=19,
        security=login.security(secure),
    )
    return login.kind.run(task)


def _assert_held(runs: Runs, login: Login) -> None:
    assert LEAST * LIMIT_BYTES_PER_S <= runs.rates[login.name] <= MOST * LIMIT_BYTES_PER_S
    assert runs.results[login.name].errors == ()
    assert runs.metrics.value("sluice_quota_limit_bytes_per_second", user=login.user) == LIMIT_BYTES_PER_S
    assert runs.metrics.value("sluice_quota_throttle_seconds_total", user=login.user) > MEASURED_S / 3


def _assert_refused(secure: SecureCluster, guarded: Guarded, login: Login) -> None:
    """The client says so itself, it is counted, and of the user whose name was given nothing is seen."""
    failed = authentications(guarded.sluice, "failed", login.listener)
    client_id = fresh_name("refused")
    task = Produce(
        bootstrap=guarded.sluice.listeners[login.listener].bootstrap,
        client_id=client_id,
        topic=fresh_name("never"),
        records=1,
        security=login.wrong_security(secure),
    )
    with login.kind.run(task) as client:
        client.wait_for(lambda client: REFUSED.search(client.stderr()) is not None, "a refusal", timeout_s=20.0)
    assert taken_for(guarded.sluice, client_id) == set()
    if login not in UNANSWERED:
        assert authentications(guarded.sluice, "failed", login.listener) > failed


def _quotas() -> str:
    lines = [f"  - {{entity: {{user: {login.user}}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}\n" for login in ALL]
    return f"quotas:\n{EVERYBODY}" + "".join(lines)
