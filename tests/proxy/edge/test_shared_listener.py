"""Two workers at one TLS port: each connection is served by the worker of the broker that its client names."""

import asyncio
import pickle
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_network

import pytest
from structlog.testing import capture_logs

from config.listener import ProxyProtocol
from config.units import Address
from protocol.tls_hello import Hello, HelloSearch, Incomplete
from proxy.edge import doors, sorter
from proxy.edge.arrival import Arrival
from proxy.edge.connection_slots import ConnectionSlots
from proxy.edge.proxy_protocol import V2_SIGNATURE
from proxy.edge.sorter import Passed, Passing
from proxy.edge.wires import ClientWire
from proxy.owners.map import EVERYTHING, OwnersInForce, Placement
from proxy.runtime.faults import counts
from proxy.session.session import Session
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.protocol.test_tls_hello import divided
from tests.proxy.edge.test_connection_gate import BURST, ONE_A_SECOND, connected, is_closed
from tests.proxy.edge.test_tls import SNI, refused
from tests.proxy.front import TIMEOUT_S, Front, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets

pytestmark = pytest.mark.asyncio

PLACED = {1: 0, 2: 1}
TRUSTED = ProxyProtocol(networks=(ip_network("127.0.0.0/8"),))
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9092\r\n"
V2 = V2_SIGNATURE + b"\x21\x11\0\x0f" + bytes([192, 0, 2, 7, 198, 51, 100, 1]) + b"\xdc\x04\x23\x84" + b"\x04\0\0"
HALF = b"\x16\x03\x01\1\0\1"
ANSWER = b"\0\0\0\7" + bytes(4)


@pytest.fixture(autouse=True)
def _without_faults() -> Iterator[None]:
    before = dict(counts)
    yield
    assert counts == before


@dataclass
class Pair:
    """Worker 0, which accepts, and has broker 1; and worker 1, which has broker 2."""

    accepting: Front
    other: Front
    passing: list[Passing]

    @property
    def port(self) -> int:
        return self.accepting.bootstrap_port

    def sessions(self) -> list[int]:
        return [len(each.listener.sessions) for each in (self.accepting, self.other)]

    def counted(self, outcome: str = "accepted") -> list[int]:
        return [each.stats.connections["PLAIN", outcome] for each in (self.accepting, self.other)]

    def unsorted(self) -> list[ConnectionSlots]:
        return [each.unsorted for each in self.passing]

    async def until_idle(self) -> None:
        """Wait until no connection has a slot any more."""
        slots = [*(each.slots for each in (self.accepting, self.other)), *self.unsorted()]
        stats = [each.stats.sessions for each in (self.accepting, self.other)]
        await until(lambda: not any(each.taken for each in slots) and not any(each.total() for each in stats))


@asynccontextmanager
async def passings(unsorted: int, number: int = 2) -> AsyncIterator[list[Passing]]:
    """Yield the ends of so many workers; so many connections may have no worker yet."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(number)]
    copies = [[[end.dup() for end in pair] for pair in pairs] for _ in range(number)]
    for each in (end for pair in pairs for end in pair):
        each.setblocking(False)  # also the copies
        each.close()
    try:
        slots = [
            ConnectionSlots(most=unsorted, most_of_ip=None, overrides={}, most_before_request=unsorted)
            for _ in range(number)
        ]
        yield [Passing(own, copies[own], slots[own]) for own in range(number)]
    finally:
        for each in (end for channels in copies for pair in channels for end in pair):
            if each.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(each)
                each.close()


@asynccontextmanager
async def two_workers(pki: Pki, unsorted: int = 10, **options: object) -> AsyncIterator[Pair]:
    """Options are those of ``front``."""
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(fake_broker()) for _ in range(2)]
        one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        fronts = []
        ends = await stack.enter_async_context(passings(unsorted))
        for number, passing in enumerate(ends):
            owners = OwnersInForce("", EVERYTHING, placement=Placement(number, 2, PLACED))
            given = {"tls": pki.settings(), **SNI, **options, "is_open": number == 0, "owners": owners}
            fronts.append(await stack.enter_async_context(front(one, **given, passing=passing)))
        yield Pair(fronts[0], fronts[1], ends)


def sent_in(pieces: Callable[[bytes], list[bytes]], pair: Pair, tls: ssl.SSLContext, host: str | None) -> bytes:
    """Ask a broker, with a ClientHello that is sent in pieces; return the answer."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls.check_hostname = False
    client = tls.wrap_bio(incoming, outgoing, server_hostname=host)
    with socket.create_connection(("127.0.0.1", pair.port), TIMEOUT_S) as plain, suppress(ssl.SSLWantReadError):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def step(do: Callable[[], object]) -> object:
            while True:
                try:
                    return do()
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(65536))

        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        for piece in pieces(outgoing.read()):
            plain.sendall(piece)
        incoming.write(plain.recv(65536))
        step(client.do_handshake)
        client.write(list_offsets(7))
        plain.sendall(outgoing.read())
        answer = b""
        while len(answer) < 12:
            answer += bytes(step(client.read))  # type: ignore[call-overload]  # bytes
        return answer[4:]
    raise AssertionError("never")


WHOLE = {
    "whole": lambda hello: [hello],
    "a byte at a time": lambda hello: [hello[at : at + 1] for at in range(len(hello))],
    "records of one byte": lambda hello: [divided(hello, *range(1, len(hello) - 5))],
    "divided in the name": lambda hello: [divided(hello, hello.index(b".kafka.test"))],
}


@pytest.mark.parametrize("pieces", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_the_worker_of_the_named_broker_serves(
    pki: Pki, pieces: Callable[[bytes], list[bytes]], version: ssl.TLSVersion
) -> None:
    async with two_workers(pki) as pair:
        for number, host in enumerate(("b1.kafka.test", "B2.kafka.test")):
            tls = pki.client()
            tls.minimum_version = tls.maximum_version = version
            assert await asyncio.to_thread(sent_in, pieces, pair, tls, host) == ANSWER
            assert pair.counted() == [1, number]
        await pair.until_idle()
        assert pair.counted("left_early") == [0, 0]


@pytest.mark.uncompiled("another class is put in place")
@pytest.mark.parametrize("pieces", WHOLE.values(), ids=WHOLE)
async def test_a_client_hello_in_pieces_is_looked_at_few_times(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, pieces: Callable[[bytes], list[bytes]]
) -> None:
    looks = [0]

    class Counting(HelloSearch):
        def look(self, data: bytes) -> Hello | Incomplete:
            looks[0] += 1
            return super().look(data)

    monkeypatch.setattr(sorter, "HelloSearch", Counting)
    async with two_workers(pki) as pair:
        assert await asyncio.to_thread(sent_in, pieces, pair, pki.client(), "b2.kafka.test") == ANSWER
        await pair.until_idle()
    assert 1 <= looks[0] <= 6


async def test_clients_that_name_no_broker_stay(pki: Pki) -> None:
    async with two_workers(pki) as pair:
        for host in ("boot.kafka.test", None):
            tls = pki.client()
            assert await asyncio.to_thread(sent_in, WHOLE["whole"], pair, tls, host) == ANSWER
        await pair.until_idle()
        assert pair.counted() == [2, 0]


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("split", [0, 9, 30])
async def test_a_load_balancers_header_is_taken_and_its_client_passed_on(pki: Pki, header: bytes, split: int) -> None:
    def pieces(hello: bytes) -> list[bytes]:
        return [header[:split], header[split:] + hello[:100], hello[100:]]

    async with two_workers(pki, proxy_protocol=TRUSTED) as pair:
        peers: list[Address] = []
        begin = pair.other.listener._begin

        def begun(arrival: Arrival, wire: ClientWire) -> Session:
            peers.append(arrival.peer)
            return begin(arrival, wire)

        pair.other.listener._arriving._begin = begun
        assert await asyncio.to_thread(sent_in, pieces, pair, pki.client(), "b2.kafka.test") == ANSWER
        assert set(map(str, peers)) == {"192.0.2.7:56324"}
        await pair.until_idle()
        assert pair.counted() == [0, 1]


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (b"", None),
        (b"\0\0\0\x1c\0\x12\0\3" + bytes(24), "not_tls"),
        (V1, "proxy_protocol_not_allowed"),
        (b"\x16\x03\x01\0\1\1", "tls_handshake"),
        (b"\x16\x03\x01\xff\xff", "tls_handshake"),
        (b"\x16\x03\x01\0\4\2\0\0\1", "tls_handshake"),
        (b"\x16\x03\x01\x3f\xff\1\xff\xff\xff" + bytes(40_000), "tls_handshake"),
    ],
    ids=["nothing", "plaintext", "PROXY", "half a hello", "too long", "no hello", "more than is looked at"],
)
async def test_first_bytes_without_tls_hello_are_rejected(pki: Pki, first: bytes, cause: str | None) -> None:
    async with two_workers(pki) as pair:
        with socket.create_connection(("127.0.0.1", pair.port), TIMEOUT_S) as plain:
            plain.sendall(first)
            plain.shutdown(socket.SHUT_WR)
            await until(lambda: pair.counted()[0], equals=1)
            await pair.until_idle()
        assert pair.counted("left_early") == [int(cause is None), 0]
        assert (pair.accepting.rejected(), pair.other.rejected()) == ({} if cause is None else {cause: 1}, {})


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", V1[:20]], ids=["no header", "half a header"])
async def test_a_load_balancer_without_a_header_is_refused(pki: Pki, first: bytes) -> None:
    async with two_workers(pki, proxy_protocol=TRUSTED) as pair:
        with socket.create_connection(("127.0.0.1", pair.port), TIMEOUT_S) as plain:
            plain.sendall(first)
            plain.shutdown(socket.SHUT_WR)
            await until(lambda: bool(pair.accepting.rejected()))
            await pair.until_idle()
        assert pair.counted() == [1, 0]
        cause = "proxy_protocol_missing" if first[:1] == b"G" else "proxy_protocol_invalid"
        assert pair.accepting.rejected() == {cause: 1}


async def test_half_a_hello_ends_at_the_deadline(pki: Pki) -> None:
    async with two_workers(pki, authentication_timeout_s=0.2) as pair:
        with socket.create_connection(("127.0.0.1", pair.port), TIMEOUT_S) as plain:
            plain.sendall(HALF)
            await until(lambda: bool(pair.accepting.rejected()))
        await pair.until_idle()
        assert (pair.accepting.rejected(), pair.counted()) == ({"authentication_timeout": 1}, [1, 0])


async def test_half_hellos_take_no_slot_of_others(pki: Pki) -> None:
    """One address may have half of the slots that are for them, and they take none of those for connections."""
    async with two_workers(pki, unsorted=6, limit=4) as pair:
        with connected(pair.port, 5, "127.0.0.2", HALF):
            await until(pair.accepting.rejected, equals={"connections_per_ip": 2})
            assert (pair.unsorted()[0].taken, pair.accepting.slots.taken) == (3, 0)
            for host in ("b1.kafka.test", "b2.kafka.test"):
                async with client(pair.port, pki.client(), host) as asking:
                    assert await asking.ask(list_offsets(7)) == ANSWER
        await pair.until_idle()


async def test_the_oldest_half_hello_makes_room(pki: Pki) -> None:
    async with two_workers(pki, unsorted=2) as pair:
        pair.unsorted()[0].grace_s = 0.0
        with connected(pair.port, 1, "127.0.0.2", HALF) as (first,), connected(pair.port, 1, "127.0.0.3", HALF):
            await until(lambda: pair.unsorted()[0].taken, equals=2)
            async with client(pair.port, pki.client(), "b2.kafka.test") as asking:
                assert await asking.ask(list_offsets(7)) == ANSWER
            await until(lambda: is_closed(first))
            assert pair.accepting.rejected() == {"connections_before_request": 1}
        await pair.until_idle()


async def test_rates_and_limits_count_at_the_worker_that_serves(pki: Pki) -> None:
    async with two_workers(pki, policy=ONE_A_SECOND, limit=2) as pair:
        for host, expected in (("b1.kafka.test", [2, 0]), ("b2.kafka.test", [2, 2])):
            async with AsyncExitStack() as stack:
                for _ in range(2):
                    asking = await stack.enter_async_context(client(pair.port, pki.client(), host))
                    await asking.ask(list_offsets(7))
                assert pair.counted() == expected
                assert sum(pair.sessions()) == 2
        await pair.until_idle()
        for _ in range(BURST - 2):
            async with client(pair.port, pki.client(), "b2.kafka.test") as asking:
                await asking.ask(list_offsets(7))
        async with client(pair.port, pki.client(), "b2.kafka.test") as held:
            held.writer.write(list_offsets(7))
            await until(pair.other.rejected, equals={"connection_rate_per_ip": 1})
        async with client(pair.port, pki.client(), "b1.kafka.test") as asking:
            await asking.ask(list_offsets(7))
        assert pair.accepting.rejected() == {}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long."""
    monkeypatch.setattr(sorter, "AGAIN_S", 0.001)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("host", ["b3.kafka.test", "elsewhere.test", "x" * 63 + ".test"])
async def test_a_host_that_is_not_served_is_refused_as_with_one_worker(pki: Pki, host: str) -> None:
    async with two_workers(pki) as pair:
        assert await refused(pair.accepting, pki.client(), "unknown_sni", host) == "TLSV1_UNRECOGNIZED_NAME"
        assert pair.counted() == [1, 0]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("late", [0, 1], ids=["which accepts", "which serves"])
async def test_a_broker_that_a_worker_has_not_heard_of_is_waited_for(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    monkeypatch.setattr(sorter, "_LOOKS_AGAIN", 10_000)
    async with two_workers(pki) as pair:
        front, unsorted = (pair.accepting, pair.other)[late], pair.unsorted()[late]
        hosts = front.listener.addresses.hosts
        del hosts["b2.kafka.test"]
        asking = asyncio.create_task(asyncio.to_thread(sent_in, WHOLE["whole"], pair, pki.client(), "b2.kafka.test"))
        await until(lambda: unsorted.taken, equals=1)
        await asyncio.sleep(0.02)
        assert unsorted.taken == 1
        hosts["b2.kafka.test"] = 2
        assert await asking == ANSWER
        await pair.until_idle()
        assert pair.counted() == [0, 1]


@pytest.mark.usefixtures("impatient")
async def test_while_a_worker_receives_nothing_others_are_served(pki: Pki) -> None:
    async with two_workers(pki) as pair:
        receiver = pair.passing[1]._receiver
        asyncio.get_running_loop().remove_reader(receiver)
        fill = Passed("PLAIN", "b2.kafka.test", Address("127.0.0.2", 1), 0)
        data, sender = pickle.dumps(fill), pair.passing[0]._senders[1]
        with socket.socket() as any_socket, suppress(BlockingIOError):
            while True:
                socket.send_fds(sender, [data], [any_socket.fileno()])
        asking = asyncio.create_task(asyncio.to_thread(sent_in, WHOLE["whole"], pair, pki.client(), "b2.kafka.test"))
        async with client(pair.port, pki.client(), "b1.kafka.test") as served:
            assert await served.ask(list_offsets(7)) == ANSWER
        await until(lambda: pair.unsorted()[0].taken, equals=1)
        pair.passing[1].receive("PLAIN", pair.other.listener.take_passed)
        assert await asking == ANSWER
        await pair.until_idle()


async def test_connection_for_stopped_worker_closes_as_broker_unreachable(pki: Pki) -> None:
    async with two_workers(pki) as pair:
        asyncio.get_running_loop().remove_reader(pair.passing[1]._receiver)
        pair.passing[1]._receiver.close()
        with pytest.raises(ConnectionError):
            async with client(pair.port, pki.client(), "b2.kafka.test"):
                pass
        await pair.until_idle()
        assert (pair.counted("broker_unreachable"), pair.counted()) == ([1, 0], [0, 0])


async def test_a_broker_that_has_moved_on_is_turned_away_by_the_worker_that_had_it(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ports, a client takes that for a broker that went away."""
    monkeypatch.setattr(doors, "LET_IN", 0.0)
    async with two_workers(pki) as pair:
        owners = pair.other.listener._admission.owners
        assert owners is not None
        owners.replace(EVERYTHING, placement=Placement(1, 2, {1: 0, 2: 0}))
        async with client(pair.port, pki.client(), "b2.kafka.test") as asking:
            asking.writer.write(list_offsets(7))
            assert await asking.closed()
        await pair.until_idle()
        assert pair.counted("not_owner") == [0, 1]


async def test_a_worker_that_stops_takes_no_more(pki: Pki) -> None:
    async with two_workers(pki) as pair:
        pair.other.listener.close()
        with pytest.raises(ConnectionError):
            async with client(pair.port, pki.client(), "b2.kafka.test"):
                pass
        await pair.until_idle()


async def test_a_message_whose_descriptor_found_no_room_is_told(pki: Pki) -> None:
    async with two_workers(pki) as pair:
        message = Passed("PLAIN", "b2.kafka.test", Address("127.0.0.2", 1), 0)
        with capture_logs() as logs:
            pair.passing[0]._senders[1].send(pickle.dumps(message))
            await until(lambda: bool(logs))
        assert logs[0]["event"] == "no descriptor for a connection of another worker"
        async with client(pair.port, pki.client(), "b2.kafka.test") as asking:
            assert await asking.ask(list_offsets(7)) == ANSWER


async def test_after_a_message_that_cannot_be_read_others_are_received(pki: Pki) -> None:
    async with two_workers(pki) as pair:
        pair.passing[0]._senders[1].send(b"not one")
        async with client(pair.port, pki.client(), "b2.kafka.test") as asking:
            assert await asking.ask(list_offsets(7)) == ANSWER
    assert counts.pop("receive connections of other workers") == 1


async def test_last_worker_stops_reading_the_closed_channel(pki: Pki) -> None:
    async with two_workers(pki) as pair:
        pair.passing[0]._senders[1].close()
        await until(lambda: not asyncio.get_running_loop().remove_reader(pair.passing[1]._receiver))
