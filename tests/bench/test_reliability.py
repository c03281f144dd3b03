"""The harness of docs/reliability.md: its verdict finds each kind of harm, its faults do what they say, and it runs."""

import socket
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.reliability.__main__ import all_faults
from bench.reliability.clients import ALL_FAMILIES
from bench.reliability.faults import FinMidAnswer, ResetMidRequest
from bench.reliability.figures import Figure, Result, load, save, sum_of
from bench.reliability.ledger import TRANSACTION_RECORDS, Account, Acked, Log, Mode, Stored, encode, verdict
from bench.reliability.process_faults import Killed
from bench.reliability.run import Load, strike
from bench.reliability.stage import Stage
from bench.reliability.wire import Cut, Ending, FaultGate, Frames, Piece
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.wire import Address

PRODUCER = 7


def stored(*sequences: int, partition: int = 0) -> list[Stored]:
    return [
        Stored.decode(offset, partition, encode(PRODUCER, each, partition)) for offset, each in enumerate(sequences)
    ]


def acked(*sequences: int) -> list[Acked]:
    return [Acked(PRODUCER, each, 0, offset) for offset, each in enumerate(sequences)]


def problems(mode: Mode, log: Sequence[Stored], account: Account, through: Sequence[Stored] | None = None) -> set[str]:
    return set(verdict(mode, account, {0: log}, {0: log if through is None else through}).problems)


@pytest.mark.parametrize("mode", [Mode.IDEMPOTENT, Mode.ALL, Mode.ONE])
def test_a_whole_ledger_has_no_problem(mode: Mode) -> None:
    found = verdict(mode, Account(acked(0, 1, 2)), {0: stored(0, 1, 2, 3)}, {0: stored(0, 1, 2, 3)})
    assert (found.problems, found.acked, found.stored) == ({}, 3, 4)


def test_each_harm_is_found() -> None:
    whole = Account(acked(0, 1, 2))
    assert problems(Mode.ALL, stored(0, 1), whole) == {"lost"}
    assert problems(Mode.ALL, stored(0, 1, 2), Account([replace(acked(0)[0], offset=1)])) == {"at another offset"}
    moved = [replace(each, offset=-1) for each in whole.acked]
    assert problems(Mode.IDEMPOTENT, stored(0, 2, 1), Account(moved)) == {"reordered"}
    assert problems(Mode.ALL, stored(0, 2, 1), Account(moved)) == {"reordered without idempotence"}
    assert problems(Mode.IDEMPOTENT, stored(0, 1, 2, 2), whole) == {"duplicated"}
    assert problems(Mode.ALL, stored(0, 1, 2), whole, stored(0, 1)) == {"different through the proxy"}
    assert problems(Mode.ONE, stored(0, 2, 1), Account(moved)) == {"reordered without idempotence"}
    broken = [*stored(0, 1, 2), Stored.decode(3, 0, encode(PRODUCER, 3, 0)[:-1] + b"\0")]
    assert problems(Mode.ALL, broken, whole) == {"corrupt"}
    misplaced = [*stored(0, 1, 2), Stored.decode(3, 0, encode(PRODUCER, 3, 1))]
    assert problems(Mode.ALL, misplaced, whole) == {"corrupt"}


def test_a_repetition_is_counted_where_the_mode_allows_it() -> None:
    log: Log = {0: stored(0, 1, 0, 1, 2)}
    account = Account([*acked(0, 1), Acked(PRODUCER, 2, 0, 4)])
    assert (verdict(Mode.ALL, account, log, log).problems, verdict(Mode.ALL, account, log, log).repeated) == ({}, 2)


def test_transactions_are_visible_whole_or_not_at_all() -> None:
    one, half = range(TRANSACTION_RECORDS), range(TRANSACTION_RECORDS // 2)
    assert problems(Mode.TRANSACTIONAL, stored(*one), Account(acked(*one))) == set()
    assert problems(Mode.TRANSACTIONAL, stored(*half), Account()) == {"committed in part"}
    assert problems(Mode.TRANSACTIONAL, stored(*one), Account(aborted={(PRODUCER, 0)})) == {"aborted but visible"}


def test_an_account_is_read_from_the_files_of_producers(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("acked 1 0 0 5 1000\nacked 1 3 0 6 3500\naborted 1 2\nfailed 1 9 KafkaTimeoutError\n")
    account = Account.read([tmp_path / "a"])
    assert account.acked == [Acked(1, 0, 0, 5, 1000), Acked(1, 3, 0, 6, 3500)]
    assert (account.aborted, account.given_up) == ({(1, 2)}, {"KafkaTimeoutError": 1})
    assert account.longest_pause_s == pytest.approx(2.5)


@given(st.lists(st.binary(max_size=20), max_size=8), st.lists(st.integers(1, 30), max_size=8))
def test_frames_begin_where_they_do_however_they_are_cut(bodies: list[bytes], steps: list[int]) -> None:
    frames = [struct.pack(">i", len(body)) + body for body in bodies]
    data = b"".join(frames)
    found, at, splitter = [], 0, Frames()
    for step in [*steps, len(data)]:
        found += [at + start for start in splitter.starts(data[at : at + step])]
        at = min(at + step, len(data))
    assert found == [sum(map(len, frames[:number])) for number in range(len(frames))]


def through_gate(cut: Cut, data: bytes) -> bytes:
    """The part that arrives behind a gate with that cut of requests; raises if the connection is reset."""
    with socket.create_server((LOOPBACK, 0)) as target:
        gate = FaultGate(Address(LOOPBACK, free_port()), Address(LOOPBACK, target.getsockname()[1]))
        gate.requests = (cut,)
        with gate, socket.create_connection((LOOPBACK, gate._listen.port)) as client:
            client.sendall(data)
            there, _ = target.accept()
            with there:
                there.settimeout(20.0)
                found = b""
                while chunk := there.recv(1 << 16):
                    found += chunk
                there.sendall(b"answer")
                assert cut is not half or client.recv(6) == b"answer"
                return found


def half(chunk: bytes, starts: Sequence[int]) -> list[Piece]:
    return [Piece(chunk[:5], ending=Ending.HALF_CLOSE)]


def fin(chunk: bytes, starts: Sequence[int]) -> list[Piece]:
    return [Piece(chunk[:3], ending=Ending.FIN)]


def reset(chunk: bytes, starts: Sequence[int]) -> list[Piece]:
    return [Piece(b"", ending=Ending.RESET)]


def test_gates_cut_and_end_connections() -> None:
    assert through_gate(half, b"0123456789") == b"01234"
    assert through_gate(fin, b"0123456789") == b"012"
    with pytest.raises(ConnectionResetError):
        through_gate(reset, b"0123456789")


def test_b1_needs_its_number_of_records_and_no_failure(tmp_path: Path) -> None:
    good = Figure("F1", "a fault", "measured", "mark", Result.PASS, 1, 4_000_000)
    save([good, replace(good, name="F10"), replace(good, name="F9", result=Result.NOT_RUN, acked=0)], tmp_path / "file")
    found = load(tmp_path / "file")
    assert list(found) == ["F1", "F9", "F10"]
    assert sum_of(found.values()).result == Result.PASS
    assert sum_of([good]).result == Result.NOT_RUN
    assert sum_of([good, replace(good, name="F10", result=Result.FAIL)]).result == Result.FAIL


def test_each_fault_of_the_list_has_a_class() -> None:
    assert {each.id.partition("-")[0] for each in all_faults()} >= {f"F{number}" for number in range(1, 27)}
    assert all(each().what for each in all_faults())


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_minute_of_faults_harms_no_record() -> None:
    clients = Load(ALL_FAMILIES, rate=100.0)
    with Stage(clients.families) as stage:
        for fault in (ResetMidRequest(), FinMidAnswer(), Killed()):
            figure = strike(stage, fault, clients, seconds=8.0, seed=1)
            print(figure)
            assert figure.result == Result.PASS, figure
