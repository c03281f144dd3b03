"""What the ends of a session do in the states of a transport that real sockets seldom show; see test_tls.py, too."""

import asyncio
import sys
from typing import cast

import pytest

from protocol.errors import Cause, ProtocolError
from proxy.edge.connection_slots import ConnectionSlot, ConnectionSlots
from proxy.edge.kernel import LOST
from proxy.edge.wires import TLS_WRITE_BYTES, ClientWire
from proxy.session.session import Session
from tests.harness.polling import until
from tests.proxy.playbook import Play, list_offsets

pytestmark = pytest.mark.asyncio


class Transport:
    """Records what it is told; asyncio's own with TLS takes no second close, and logs what is written behind it."""

    def __init__(self, *, tls: bool, pending_bytes: int = 0) -> None:
        self.told: list[str] = []
        self.closing = False
        self.pending_bytes = pending_bytes
        self.acked_bytes = 0
        self._tls = object() if tls else None

    def get_extra_info(self, name: str) -> object:
        return self._tls if name == "ssl_object" else self

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Show how much the peer has taken: ``acked_bytes`` in a tcp_info."""
        return bytes(120) + self.acked_bytes.to_bytes(8, sys.byteorder)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def set_read_buffer_limits(self, high: int, low: int) -> None:
        self.told.append(f"read ahead at most {high}")

    def get_write_buffer_size(self) -> int:
        return self.pending_bytes

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        assert not self.closing
        self.closing = True
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")

    def write(self, data: bytes) -> None:
        assert not self.closing
        self.told.append(f"write {len(data)}")

    def pause_reading(self) -> None:
        assert not self.closing
        self.told.append("pause")

    def resume_reading(self) -> None:
        assert not self.closing
        self.told.append("resume")


def slots() -> ConnectionSlots:
    return ConnectionSlots(most=1, most_of_ip=None, overrides={}, most_before_request=1)


def slot_of(taken: ConnectionSlots) -> ConnectionSlot:
    return taken.enter("10.0.0.1", 1, 0.0, lambda _: None)


def connected(transport: Transport) -> tuple[ClientWire, Session]:
    """Return the end of a client whose first request is with the broker, and its session."""
    play = Play()
    end = ClientWire(lambda _begun: True, slot_of(slots()))
    end.connection_made(cast("asyncio.BaseTransport", transport))
    end.data_received(list_offsets(1))
    end.begin(play.session)
    assert play.broker.take() == list_offsets(1)
    transport.told.clear()
    return end, play.session


async def test_when_tls_is_over_nothing_more_is_written_or_closed_or_paused() -> None:
    transport = Transport(tls=True)
    end, session = connected(transport)
    end.write(b"answer")
    assert end.eof_received() is False
    transport.closing = True  # as it is by itself, after close_notify
    end.write(b"answer")
    end.pause_reading()
    end.resume_reading()
    end.close()
    end.close()
    assert (transport.told, session.finished) == (["write 6"], True)
    end.connection_lost(None)


async def test_tls_is_written_to_in_parts_of_which_none_is_lost() -> None:
    class Encrypting(Transport):
        sent = b""

        def write(self, data: bytes) -> None:
            super().write(data)
            self.sent += data

    transport = Encrypting(tls=True)
    end, _ = connected(transport)
    answer = bytes(number % 251 for number in range(2 * TLS_WRITE_BYTES + 5))
    end.write(answer)
    assert transport.told == [f"write {TLS_WRITE_BYTES}", f"write {TLS_WRITE_BYTES}", "write 5"]
    assert transport.sent == answer


async def test_without_tls_a_half_closed_connection_takes_answers() -> None:
    transport = Transport(tls=False)
    end, session = connected(transport)
    assert end.eof_received() is True
    end.write(b"answer")
    assert (transport.told, session.finished) == (["write 6"], True)
    session.close()
    assert end.eof_received() is False


async def test_an_end_without_an_error_is_how_tls_says_that_the_client_has_finished() -> None:
    for tls in (True, False):
        end, session = connected(Transport(tls=tls))
        end.connection_lost(None)
        assert session.closed is not tls
        assert session.closed or session.finished


async def test_connection_reset_closes_the_session() -> None:
    end, session = connected(Transport(tls=True))
    end.connection_lost(ConnectionResetError())
    assert session.closed


@pytest.mark.parametrize(("tls", "pending_bytes"), [(True, 0), (False, 5)])
async def test_a_closed_end_is_cut_off_after_a_while_unless_it_has_ended(
    tls: bool, pending_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.0)
    for ended in (False, True):
        transport = Transport(tls=tls, pending_bytes=pending_bytes)
        end, _ = connected(transport)
        end.close()
        if ended:
            end.connection_lost(None)
        await asyncio.sleep(0.01)
        assert transport.told == (["close"] if ended else ["close", "abort"])
        end.close()


async def test_a_closed_end_that_still_takes_what_was_written_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.0)
    transport = Transport(tls=False, pending_bytes=5)

    def take_more(level: int, option: int, size: int) -> bytes:
        transport.acked_bytes += looks.pop() if looks else 0
        return Transport.getsockopt(transport, level, option, size)

    looks = [1, 1, 1]
    monkeypatch.setattr(transport, "getsockopt", take_more)
    end, _ = connected(transport)
    end.close()
    while looks:
        assert transport.told == ["close"]
        await asyncio.sleep(0)
    await until(lambda: transport.told != ["close"])
    assert transport.told == ["close", "abort"]


async def test_when_tls_is_lost_while_answers_wait_they_wait_no_longer() -> None:
    end, session = connected(Transport(tls=True))
    end.pause_writing()
    assert session.unread
    end.connection_lost(None)
    assert not session.unread


async def test_there_is_no_session_before_the_first_request_and_a_client_may_be_refused_by_it() -> None:
    said: list[bytes] = []
    taken = slots()

    def is_request(begun: bytes) -> bool:
        said.append(begun)
        if len(begun) > 2:
            raise ProtocolError(Cause.UNKNOWN_API, "no")
        return False

    transport = Transport(tls=True)
    end = ClientWire(is_request, slot_of(taken))
    end.abort()  # before it is connected
    end.connection_made(cast("asyncio.BaseTransport", transport))
    for byte in (b"a", b"b", b"c", b"d"):
        end.data_received(byte)
    assert said == [b"a", b"ab", b"abc"]
    assert transport.told == ["read ahead at most 1", "abort"]
    assert end.eof_received() is False
    end.pause_writing()
    end.resume_writing()
    end.connection_lost(None)
    assert (taken.taken, end.is_open, end.look()) == (0, False, LOST)
    with pytest.raises(ProtocolError):
        await end.first_request()
