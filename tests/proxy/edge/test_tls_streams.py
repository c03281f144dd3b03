"""Bytes through TLS: what is held back, read ahead, and cut off."""

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.edge import wires
from proxy.session.flow import THROTTLED
from tests.harness.fake_broker import PRODUCE, fake_broker
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import PRODUCER, heartbeat, list_offsets, produce

pytestmark = pytest.mark.asyncio


@pytest.mark.uncompiled("another clock is put in place")
@pytest.mark.parametrize("with_close_notify", [True, False], ids=["close_notify", "FIN alone"])
async def test_throttled_requests_are_forwarded_after_client_closes_tls(
    pki: Pki, with_close_notify: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [produce(1, 20_000, acks=0), produce(2, 20_000, acks=0), *map(list_offsets, range(10))]

    def send_and_finish(port: int) -> ssl.SSLSocket:
        tls = pki.client().wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        tls.sendall(b"".join(requests))
        if with_close_notify:
            tls.settimeout(0.05)
            with suppress(TimeoutError):  # it is not answered while the proxy does not read
                tls.unwrap()
        socket.socket.shutdown(tls, socket.SHUT_WR)
        return tls

    async with fake_broker() as one, front(one, tls=pki.settings(), quotas={PRODUCER: 1024}) as proxy:
        monkeypatch.setattr(wires, "now_ms", proxy.play.loop.clock)  # what comes in parts comes at one time
        one.answers[PRODUCE] = lambda _: b""
        before = len(one.requests)
        leaving = await asyncio.to_thread(send_and_finish, proxy.bootstrap_port)
        await until(lambda: len(one.requests) != before)
        await asyncio.sleep(0.05)
        assert len(one.requests) == before + 1

        def is_over() -> bool:
            proxy.play.loop.advance(10**9)
            return not proxy.listener.sessions

        await until(is_over)
        leaving.close()
        assert [len(request) + 4 for request in one.requests[before:]] == [len(request) for request in requests]
    assert caplog.records == [], "answers are not written to a connection that is over"


async def test_a_client_that_is_not_read_is_not_read_ahead(pki: Pki) -> None:
    """Requests behind a mute stay with the client: nothing is lost when it closes, and memory is bounded."""
    async with (
        fake_broker() as one,
        front(one, tls=pki.settings()) as proxy,
        client(proxy.bootstrap_port, pki.client()) as pushing,
    ):
        await pushing.ask(list_offsets(1))
        (session,) = proxy.listener.sessions
        session.requests.stop(THROTTLED)
        total = 40
        for number in range(total):
            pushing.writer.write(heartbeat(number) if number % 2 else produce(number, 500_000))
        await asyncio.sleep(0.1)
        assert pushing.writer.transport.get_write_buffer_size() > 2_000_000
        session.go_on(THROTTLED, proxy.play.loop.now_ms)
        for number in range(total):
            answer = await pushing.ask(b"")
            assert int.from_bytes(answer[:4], "big") == number


async def test_a_slow_reader_stops_the_broker_and_loses_nothing(pki: Pki) -> None:
    async with fake_broker() as one, front(one, tls=pki.settings()) as proxy:
        one.padding = 100_000
        async with client(proxy.bootstrap_port, pki.client()) as slow:
            total = 200
            for number in range(total):
                slow.writer.write(list_offsets(number))
            await until(lambda: any(session.unread for session in proxy.listener.sessions))
            for number in range(total):
                answer = await slow.ask(b"")
                assert int.from_bytes(answer[:4], "big") == number


async def test_a_client_that_never_ends_tls_is_cut_off(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.05)
    async with fake_broker() as one, front(one, tls=pki.settings()) as proxy:
        silent = await asyncio.to_thread(asked, proxy.bootstrap_port, pki.client())
        (session,) = proxy.listener.sessions
        transport = session.client._transport  # type: ignore[attr-defined]  # a ClientWire
        descriptor = os.fstat(transport.get_extra_info("socket").fileno())
        session.close()
        await until(lambda: not _is_open(descriptor))
        silent.close()


def asked(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Connect, ask and take the answer; from then on nobody reads."""
    tls = context.wrap_socket(socket.create_connection(("127.0.0.1", port), TIMEOUT_S), server_hostname="127.0.0.1")
    tls.sendall(list_offsets(1))
    assert len(tls.recv(100)) == 12
    return tls


def _is_open(status: os.stat_result) -> bool:
    """Tell whether some descriptor of this process is that socket."""
    for name in Path("/proc/self/fd").iterdir():
        try:
            if name.stat().st_ino == status.st_ino:
                return True
        except OSError:
            continue
    return False
