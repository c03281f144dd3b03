"""The proxy's own questions to brokers with TLS and SASL. How clients are led to brokers: test_listeners.py."""

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import cast

import pytest
import trustme
from structlog.testing import capture_logs

from config.cluster import BrokerSasl, BrokerTls, Route
from config.units import Address
from protocol.locator import Endpoint
from protocol.requests import WHICH_VERSIONS
from proxy.brokers.broker import UNKNOWN, Broker
from proxy.brokers.cluster import Cluster, NoAnswerError
from proxy.brokers.known_brokers import KnownBroker, KnownBrokers
from proxy.brokers.metadata import MOST_BROKERS, Metadata, which_brokers
from tests.harness.fake_broker import (
    API_VERSIONS,
    METADATA,
    PASSWORD,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    USER,
    FakeBroker,
    fake_broker,
    reply,
)
from tests.harness.polling import until
from tests.proxy.front import end_background

pytestmark = pytest.mark.asyncio

TIMEOUT_S = 5.0


class Certificates:
    """An authority, brokers' certificates of all kinds, and the proxy's own."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.own = folder / "own.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.authority.issue_cert("sluice.example").private_key_and_cert_chain_pem.write_to_path(self.own)

    def broker(self, host: str = "127.0.0.1", not_after: datetime | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        before = datetime(2020, 1, 1, tzinfo=UTC) if not_after else None
        self.authority.issue_cert(host, not_after=not_after, not_before=before).configure_cert(context)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def sasl(tmp_path: Path) -> BrokerSasl:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return BrokerSasl(mechanism="PLAIN", username=USER, password_file=tmp_path / "password")


def cluster_of(
    *ports: int, tls: BrokerTls | None = None, sasl: BrokerSasl | None = None, demands_sasl: bool = False
) -> Cluster:
    security = {name: section for name, section in (("tls", tls), ("sasl", sasl)) if section is not None}
    route = Route(bootstrap=tuple(Address("127.0.0.1", port) for port in ports), **security)
    cluster = Cluster(
        "demo", route, lambda _: None, refresh_s=30.0, connect_timeout_s=TIMEOUT_S, demands_sasl=demands_sasl
    )
    cluster._turn = -1  # the first of the ports is asked first
    return cluster


async def refused(cluster: Cluster) -> str:
    """Return why no broker answered, as it is logged (once) and shown; clients learn nothing of passwords from it."""
    with capture_logs() as logs:
        for _ in range(2):
            await cluster.refresh()
    assert cluster.error is not None
    assert [line["tried"] for line in logs if line["log_level"] == "error"] == [cluster.error]
    assert PASSWORD not in str(logs)
    return cluster.error


# ------------------------------------------------------------------------------------------------------------ TLS


async def test_brokers_are_asked_through_tls(certificates: Certificates) -> None:
    async with fake_broker(tls=certificates.broker()) as broker:
        cluster = cluster_of(broker.port, tls=BrokerTls(ca=certificates.ca))
        assert cluster.why_not_ready == "no broker has answered yet"
        await cluster.refresh()
        assert [cluster.error, cluster.why_not_ready, *cluster.brokers] == [None, None, 1]


class Session(asyncio.Protocol):
    """Asks one thing as soon as it is connected."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(WHICH_VERSIONS.frame("client", 7))

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)
        self.transport.close()


async def test_sessions_go_through_tls(certificates: Certificates) -> None:
    async with fake_broker(tls=certificates.broker()) as broker:
        cluster = cluster_of(broker.port, tls=BrokerTls(ca=certificates.ca))
        session = Session()
        await cluster.refresh()
        await cluster.open(cluster.brokers[1], session)
        assert (await session.answer)[:8] == b"\0\0\0\x0a\0\0\0\7"


@pytest.mark.parametrize(
    ("host", "not_after", "said"),
    [
        ("other.example", None, "certificate is not valid for '127.0.0.1': add the name to it, or set tls.verify_host"),
        ("127.0.0.1", datetime(2021, 1, 1, tzinfo=UTC), "its certificate has expired: renew it"),
    ],
)
async def test_a_certificate_that_is_wrong_says_what_to_do(
    certificates: Certificates, host: str, not_after: datetime | None, said: str
) -> None:
    async with fake_broker(tls=certificates.broker(host, not_after)) as broker:
        cluster = cluster_of(broker.port, tls=BrokerTls(ca=certificates.ca))
        assert said in await refused(cluster)
        assert cluster.why_not_ready == cluster.error
        assert broker.asked == []
        with pytest.raises(ssl.SSLCertVerificationError):
            await cluster.open(cluster.candidates(None)[0], asyncio.Protocol())


async def test_a_host_name_need_not_be_verified_but_the_authority_always(certificates: Certificates) -> None:
    async with fake_broker(tls=certificates.broker("other.example")) as broker:
        trusted = cluster_of(broker.port, tls=BrokerTls(ca=certificates.ca, verify_hostname=False))
        await trusted.refresh()
        assert trusted.error is None
        other = cluster_of(broker.port, tls=BrokerTls(verify_hostname=False))
        assert "not signed by an authority trusted here: name that authority in tls.ca" in await refused(other)


async def test_tls_and_plaintext_do_not_meet(certificates: Certificates) -> None:
    async with fake_broker() as plain, fake_broker(tls=certificates.broker()) as broker:
        assert "does it speak TLS" in await refused(cluster_of(plain.port, tls=BrokerTls(ca=certificates.ca)))
        assert "require TLS, a client certificate or SASL?" in await refused(cluster_of(broker.port))


async def test_a_client_certificate_is_shown_where_it_is_demanded(certificates: Certificates) -> None:
    context = certificates.broker()
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.authority.configure_trust(context)
    shown = BrokerTls(ca=certificates.ca, certificate=certificates.own, key=certificates.own)
    async with fake_broker(tls=context) as broker:
        cluster = cluster_of(broker.port, tls=shown)
        await cluster.refresh()
        assert cluster.error is None
        without = await refused(cluster_of(broker.port, tls=BrokerTls(ca=certificates.ca)))
        assert "a client certificate" in without or "set tls.certificate" in without


@pytest.mark.long
async def test_changed_tls_files_are_followed(certificates: Certificates) -> None:
    good = certificates.ca.read_bytes()
    trustme.CA().cert_pem.write_to_path(certificates.ca)
    async with fake_broker(tls=certificates.broker()) as broker:
        cluster = cluster_of(broker.port, tls=BrokerTls(ca=certificates.ca))
        cluster.watch()
        await until(lambda: "not signed" in str(cluster.error))
        certificates.ca.write_bytes(good)
        await until(lambda: cluster.error, equals=None)
        await end_background()


async def test_tls_files_that_are_wrong_at_the_start_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"tls\.ca .*: no such file"):
        cluster_of(1, tls=BrokerTls(ca=tmp_path / "missing.pem"))


# ------------------------------------------------------------------------------------------------------ its own login


async def test_brokers_are_asked_after_a_login(sasl: BrokerSasl) -> None:
    async with fake_broker(password=PASSWORD) as broker:
        cluster = cluster_of(broker.port, sasl=sasl, demands_sasl=True)
        await cluster.refresh()
        assert (cluster.error, list(cluster.brokers)) == (None, [1])
        assert broker.asked == [SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS, METADATA]


async def test_a_changed_password_file_is_read_at_the_next_login(sasl: BrokerSasl) -> None:
    async with fake_broker(password="new") as broker:
        cluster = cluster_of(broker.port, sasl=sasl)
        said = await refused(cluster)
        assert said == f"127.0.0.1:{broker.port}: refused the login of user sluice by PLAIN: Wrong user, password"
        sasl.password_file.write_text("new\r\n")
        await cluster.refresh()
        assert cluster.error is None


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "is not UTF-8")],
)
async def test_a_password_file_that_holds_none_is_named(sasl: BrokerSasl, content: bytes | None, said: str) -> None:
    sasl.password_file.unlink()
    if content is not None:
        sasl.password_file.write_bytes(content)
    async with fake_broker(password=PASSWORD) as broker:
        assert f"password_file {sasl.password_file}: {said}" in await refused(cluster_of(broker.port, sasl=sasl))
        assert broker.asked in ([], [SASL_HANDSHAKE] * 2)


def other_mechanisms(broker: FakeBroker) -> None:
    broker.mechanisms = ["GSSAPI", "SCRAM-SHA-512"]


def no_sasl(broker: FakeBroker) -> None:
    broker.answers[SASL_HANDSHAKE] = lambda request: reply(request, pack(">hi", 34, 0))


def only_scram(broker: FakeBroker) -> None:
    broker.mechanisms = ["SCRAM-SHA-256"]


@pytest.mark.parametrize(
    ("broken", "mechanism", "said"),
    [
        (other_mechanisms, "PLAIN", "does not take PLAIN, only GSSAPI, SCRAM-SHA-512: choose"),
        (no_sasl, "PLAIN", "does not use SASL on this listener"),
        (only_scram, "SCRAM-SHA-256", "refused the login of user sluice by SCRAM-SHA-256: Wrong user, password"),
    ],
)
async def test_logins_that_fail_say_what_to_do(
    sasl: BrokerSasl, broken: Callable[[FakeBroker], object], mechanism: str, said: str
) -> None:
    async with fake_broker(password=PASSWORD) as broker:
        broken(broker)
        cluster = cluster_of(broker.port, sasl=sasl.model_copy(update={"mechanism": mechanism}))
        assert said in await refused(cluster)


async def test_a_refused_login_is_not_tried_on_every_broker_and_closes_nobody_s_way(sasl: BrokerSasl) -> None:
    async with fake_broker(password=PASSWORD) as one, fake_broker(password="other") as two:
        cluster = cluster_of(one.port, two.port, sasl=sasl)
        await cluster.refresh()
        one.password = "other"
        cluster.brokers[1].port = one.port
        assert "refused the login" in await refused(cluster)
        assert two.asked == []
        assert cluster.brokers[1].reachable
        with pytest.raises(NoAnswerError) as failed:
            await cluster.ask(which_brokers)
        assert failed.value.refused


# -------------------------------------------------------------------------------------------------------- without one


async def test_without_a_login_brokers_that_demand_sasl_are_only_asked_whether_they_are_there() -> None:
    async with fake_broker(password=PASSWORD) as broker:
        cluster = cluster_of(broker.port, demands_sasl=True)
        with capture_logs() as logs:
            await cluster.refresh()
            await cluster.refresh()
        assert (cluster.why_not_ready, cluster.brokers, cluster.can_ask) == (None, {}, False)
        assert broker.asked == [API_VERSIONS] * 2
        assert [line["event"].partition(";")[0] for line in logs] == ["cluster reachable"]
    assert "[Errno 111]" in await refused(cluster)
    assert cluster.why_not_ready == cluster.error


async def test_brokers_that_demand_sasl_unexpectedly_are_named() -> None:
    async with fake_broker(password=PASSWORD) as broker:
        assert "does the listener require TLS, a client certificate or SASL?" in await refused(cluster_of(broker.port))


# ------------------------------------------------------------------------------------------ names that are none, probes

NO_ADDRESSES = [("kafka-1..example", 9092), ("x" * 64 + ".example", 9092), ("a\0b", 9092), ("127.0.0.1", 0)]
NO_ADDRESSES += [("127.0.0.1", 65536 + 9092), ("127.0.0.1", -1)]


@pytest.mark.parametrize(("host", "port"), NO_ADDRESSES)
@pytest.mark.parametrize("secure", [False, True])
async def test_an_address_that_is_none_is_a_broker_that_is_unreachable(
    certificates: Certificates, host: str, port: int, secure: bool
) -> None:
    async with fake_broker(tls=certificates.broker() if secure else None) as broker:
        cluster = cluster_of(broker.port, tls=BrokerTls(ca=certificates.ca) if secure else None)
        broker.brokers[2] = (host, port)
        cluster._bootstrap.insert(0, Broker(UNKNOWN, host, port))
        with capture_logs() as logs:
            await cluster.refresh()
            assert (cluster.error, set(cluster.brokers)) == (None, {1, 2})
            await cluster.probe(list(cluster.brokers.values()))
            with pytest.raises(OSError):  # noqa: PT011  of whatever text: it is what a session takes
                await cluster.open(cluster.brokers[2], asyncio.Protocol())
            await cluster.ask(which_brokers)
        assert [each.reachable for each in cluster.brokers.values()] == [True, False]
        assert [line["broker"] for line in logs if line["log_level"] == "error"] == [2]


async def test_a_broker_that_comes_back_is_noticed_though_nobody_connects() -> None:
    async with fake_broker(password=PASSWORD) as broker:
        cluster = cluster_of(broker.port, demands_sasl=True)
        one = cluster.brokers[1] = Broker(1, "127.0.0.1", 1)
        with capture_logs() as logs:
            for port in (1, 1, broker.port):
                one.port = port
                await cluster.probe([one])
        assert [line["event"].partition(":")[0] for line in logs] == ["broker unreachable", "broker reachable again"]
        assert broker.asked == [API_VERSIONS]


async def test_a_broker_that_takes_connections_and_says_nothing_is_unreachable_until_it_answers() -> None:
    async with fake_broker() as broker:
        broker.brokers = {1: ("127.0.0.1", broker.port)}
        cluster = cluster_of(broker.port)
        cluster._verification._timeout_s = 0.05
        one = cluster.brokers[1] = Broker(1, "127.0.0.1", broker.port)
        broker.silent = True
        await cluster.probe([one])
        assert not one.reachable
        with pytest.raises(TimeoutError):
            await cluster.open(one, asyncio.Protocol())
        broker.silent = False
        cluster._verification._timeout_s = TIMEOUT_S
        await cluster.probe([one])
        assert one.reachable


async def test_watching_looks_after_all_brokers_at_each_refresh() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        cluster = cluster_of(one.port)
        cluster.watch()
        await until(lambda: two.asked)
        await end_background()


async def test_brokers_beyond_the_limit_are_ignored_and_logged() -> None:
    """Whoever answers instead of a broker names as many as he likes; each would take memory, and ports."""
    found: list[int] = []
    route = Route(bootstrap=(Address("127.0.0.1", 1),))
    hostile = Cluster("test", route, found.append, refresh_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S)
    with capture_logs() as logs:
        for begin in range(0, MOST_BROKERS + 300, 100):
            await hostile.take(Metadata("id", [Endpoint(each, b"kafka", 9092, 0, 0, 0) for each in range(begin + 100)]))
    assert found == list(hostile.brokers) == list(range(MOST_BROKERS))
    assert hostile.ignored == 100 + 200 + 300
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "too many brokers: further ones are ignored, and clients cannot reach them"
    ]
    await hostile.take(Metadata("id", [Endpoint(7, b"elsewhere", 9092, 0, 0, 0)]))
    assert hostile.brokers[7].host == "elsewhere"


async def test_an_answer_that_is_too_long_is_no_cluster() -> None:
    async with fake_broker() as broker:
        broker.brokers = dict.fromkeys(range(6000), ("k" * 200, 9092))
        route = Route(bootstrap=(Address("127.0.0.1", broker.port),))
        cluster = Cluster("test", route, lambda _: None, refresh_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S)
        await cluster.refresh()
        assert cluster.brokers == {}
        assert cluster.error is not None
        assert "names more brokers than a cluster may have" in cluster.error


# ------------------------------------------------------------------------------------- brokers from before the start

REMEMBERED = (KnownBroker(1, "127.0.0.1", 1), KnownBroker(2, "127.0.0.1", 2))


def endpoint(node_id: int, port: int) -> Endpoint:
    return Endpoint(node_id=node_id, host=b"127.0.0.1", port=port, id_offset=0, host_offset=0, port_offset=0)


def answer(*brokers: tuple[int, int], cluster_id: str = "id") -> Metadata:
    return Metadata(cluster_id, [endpoint(*each) for each in brokers])


def remembering(*ports: int) -> tuple[Cluster, list[int]]:
    cluster = cluster_of(*ports, demands_sasl=True)
    opened: list[int] = []
    cluster._on_broker = opened.append
    cluster.remember(KnownBrokers(cluster.bootstrap, "id", REMEMBERED))
    return cluster, opened


async def test_a_remembered_broker_is_there_for_who_comes_to_its_address_and_for_nobody_else() -> None:
    cluster, opened = remembering(9)
    assert opened == [1, 2]
    assert [str(broker) for broker in cluster.candidates(2)] == ["127.0.0.1:2"]
    assert [str(broker) for broker in cluster.candidates(None)] == ["127.0.0.1:9"]
    assert cluster.why_not_ready == "no broker has answered yet"
    assert cluster.known is None


async def test_a_remembered_broker_that_is_named_is_one_like_the_others() -> None:
    cluster, opened = remembering(9)
    await cluster.take(answer((1, 1), (2, 22)))
    assert opened == [1, 2, 1, 2]
    assert [str(broker) for broker in cluster.candidates(2)] == ["127.0.0.1:22"]
    assert cluster.why_not_ready is None
    assert cluster.known == KnownBrokers(
        cluster.bootstrap, "id", (KnownBroker(1, "127.0.0.1", 1), KnownBroker(2, "127.0.0.1", 22))
    )


async def test_remembered_broker_missing_from_first_full_metadata_is_forgotten() -> None:
    cluster, _ = remembering(9)
    await cluster.take(answer())  # of a broker that knows none yet
    assert len(cluster.brokers) == 2
    await cluster.take(answer((2, 22), (3, 33)))
    assert sorted(cluster.brokers) == [2, 3]
    assert cluster.known is not None
    assert cluster.known.cluster_id == "id"


async def test_broker_absent_from_three_answers_an_interval_apart_is_gone() -> None:
    """It was asked, and alerted of, until a restart."""
    cluster, opened = remembering(9)
    cluster._refresh_s = 0.0
    await cluster.take(answer((1, 1), (2, 2)))
    for _ in range(2):
        await cluster.take(answer((1, 1)))
    assert sorted(cluster.brokers) == [1, 2]
    await cluster.take(answer((1, 1)))
    assert sorted(cluster.brokers) == [1]
    cluster.hint([endpoint(2, 2)])  # its port is open still
    assert opened == [1, 2, 1, 2, 2]


async def test_broker_absent_from_many_answers_at_once_is_not_gone() -> None:
    cluster, _ = remembering(9)
    await cluster.take(answer((1, 1), (2, 2)))
    for _ in range(9):
        await cluster.take(answer((1, 1)))
    assert sorted(cluster.brokers) == [1, 2]


async def test_an_address_that_leads_nowhere_is_not_kept() -> None:
    """Brokers may say anything, and the file has to be readable at the next start."""
    cluster = cluster_of(9, demands_sasl=True)
    hosts = [(b"one", 9092), (b"a" * 300, 9092), (b"a\nb", 9092), (b"one", 0), (b"one", -1), (b"one", 65536)]
    await cluster.take(Metadata("id", [Endpoint(node_id, *each, 0, 0, 0) for node_id, each in enumerate(hosts)]))
    assert cluster.known == KnownBrokers(cluster.bootstrap, "id", (KnownBroker(0, "one", 9092),))


async def test_the_proxy_s_own_metadata_is_an_answer_that_names_all(sasl: BrokerSasl) -> None:
    async with fake_broker(password=PASSWORD) as broker:
        cluster = cluster_of(broker.port, sasl=sasl)
        cluster.remember(KnownBrokers(cluster.bootstrap, "", (KnownBroker(9, "127.0.0.1", 1),)))
        await cluster.refresh()
        assert (cluster.error, [*cluster.brokers]) == (None, [1])
