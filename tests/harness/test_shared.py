"""Threads stand for the worker processes: a lock belongs to who opened the file."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
from cryptography.x509 import load_pem_x509_certificate

from tests.harness.certificates import Authority, common_name
from tests.harness.process import Program
from tests.harness.shared import shared
from tests.harness.tokens import Issuer

TIMEOUT_S = 10.0


def counted(events: list[str]) -> Callable[[], AbstractContextManager[list[str]]]:
    @contextmanager
    def server() -> Iterator[list[str]]:
        time.sleep(0.05)  # a broker takes seconds
        events.append("started")
        yield ["server"]
        events.append("stopped")

    return server


def test_server_starts_once_and_stops_after_its_last_user(tmp_path: Path) -> None:
    events: list[str] = []
    is_used, may_end = Event(), Event()

    def other() -> None:
        with shared(tmp_path / "server", counted(events)) as copy:
            assert copy == ["server"]
            is_used.set()
            assert may_end.wait(TIMEOUT_S)
            events.append("used")

    def late() -> None:
        may_end.wait(0.1)
        may_end.set()

    with ThreadPoolExecutor() as threads:
        with shared(tmp_path / "server", counted(events)):
            second = threads.submit(other)
            assert is_used.wait(TIMEOUT_S)
            threads.submit(late)
        second.result(TIMEOUT_S)
    assert events == ["started", "used", "stopped"]


def test_users_that_come_at_the_same_time_use_one_server_together(tmp_path: Path) -> None:
    events: list[str] = []
    begin, together = Barrier(8), Barrier(8)

    def use() -> None:
        begin.wait(TIMEOUT_S)
        with shared(tmp_path / "server", counted(events)):
            together.wait(TIMEOUT_S)

    with ThreadPoolExecutor(8) as threads:
        users = [threads.submit(use) for _ in range(8)]
    assert [user.result() for user in users] == [None] * 8
    assert events == ["started", "stopped"]


def test_user_after_the_stop_starts_the_server_again(tmp_path: Path) -> None:
    events: list[str] = []
    for _ in range(2):
        with shared(tmp_path / "server", counted(events)):
            pass
    assert events == ["started", "stopped"] * 2


def test_server_that_did_not_start_is_started_by_the_next_user(tmp_path: Path) -> None:
    @contextmanager
    def failing() -> Iterator[list[str]]:
        raise OSError("no port")
        yield

    with pytest.raises(OSError, match="no port"), shared(tmp_path / "server", failing):
        pass
    events: list[str] = []
    with shared(tmp_path / "server", counted(events)) as started:
        assert started == ["server"]


def test_copies_of_keys_sign_for_the_same_authority(tmp_path: Path) -> None:
    given = Authority(tmp_path), Issuer()
    with (
        shared(tmp_path / "server", lambda: _given(given)),
        shared(tmp_path / "server", lambda: _given(given)) as (authority, issuer),
    ):
        signed = authority.issue("client", common_name("client")).certificate.read_bytes()
        load_pem_x509_certificate(signed).verify_directly_issued_by(
            load_pem_x509_certificate(given[0].certificate.read_bytes())
        )
        issuer.write_jwks(tmp_path / "copy")
        given[1].write_jwks(tmp_path / "own")
    assert (tmp_path / "copy").read_text() == (tmp_path / "own").read_text()


def test_copy_of_a_program_has_its_id_and_output(tmp_path: Path) -> None:
    with Program("sleep", ["sh", "-c", "echo said; exec sleep 60"], tmp_path / "log") as program:
        program.wait_until(lambda: "said" in program.output(), "its output", TIMEOUT_S)
        with (
            shared(tmp_path / "server", lambda: _given(program)),
            shared(tmp_path / "server", lambda: _given(program)) as copy,
        ):
            assert (copy.pid, copy.is_running, copy.output()) == (program.pid, True, "said\n")


@contextmanager
def _given(value: Any) -> Iterator[Any]:
    yield value
