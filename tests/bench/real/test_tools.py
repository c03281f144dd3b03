"""What the performance tools print, and what comes of one that fails."""

from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.real import tools
from bench.real.tools import Moved, Tools, read_consumed, read_sent

SENT = """\
[main] INFO org.apache.kafka.common.utils.AppInfoParser - Kafka version: 4.3.1
83201 records sent, 16640.2 records/sec (15.87 MB/sec), 1650.6 ms avg latency, 2104.0 ms max latency.
200000 records sent, 26399.2 records/sec (25.18 MB/sec), 1189.11 ms avg latency, 1930.00 ms max latency, \
1198 ms 50th, 1754 ms 95th, 1900 ms 99th, 1923 ms 99.9th.
"""
NAMES = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
CONSUMED = f"""\
[main] INFO org.apache.kafka.clients.Metadata - [Consumer clientId=bench-000000, groupId=g1] Cluster ID: MkU3
{NAMES}
[main] INFO a, line, of, the, log, with, as, many, commas, between
2026-11-22 17:29:23:765, 2026-11-22 17:29:26:159, 476.8372, 199.1801, 500000, 208855.4720, 551, 1843, 258.73, 271296.80
[main] INFO org.apache.kafka.common.metrics.Metrics - Metrics scheduler closed
"""


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Tools whose class is a script for the shell."""
    monkeypatch.setattr(tools, "tool_command", lambda main_class, *_: ["sh", "-c", main_class])
    return Tools(0, tmp_path)


def test_producer_figures_are_those_of_its_last_line() -> None:
    moved = read_sent(SENT, 1000)
    assert moved is not None
    assert (moved.records, moved.bytes) == (200_000, 200_000_000)
    assert moved.seconds == pytest.approx(7.576, abs=0.001)


def test_a_consumer_is_read_by_the_names_of_its_columns() -> None:
    assert read_consumed(CONSUMED) == Moved(500_000, 476.8372 * 2**20, 1.843)


@pytest.mark.parametrize("said", ["", "Exception in thread main\n", SENT.partition("200000")[0], NAMES])
def test_tool_output_without_figures_reads_as_none(said: str) -> None:
    assert read_sent(said, 1000) is None
    assert read_consumed(said) is None


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo no such topic; exit 1", r"producer ended with status 1\n(.*\n)*no such topic"),
        ("echo that was all", r"reported no of 5 records:\nthat was all"),
        ("echo '3 records sent, 1.0 records/sec (0.1 MB/sec), 1 ms avg, 2 ms 50th'", "reported 3 of 5 records"),
    ],
)
def test_a_tool_that_fails_says_why(local: Tools, monkeypatch: pytest.MonkeyPatch, script: str, error: str) -> None:
    monkeypatch.setattr(tools, "_PRODUCER", script)
    with pytest.raises(BenchError, match=error):
        local.produce(1, "topic", 5)


def test_a_tool_that_does_not_end_is_stopped(local: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tools, "_CONSUMER", "echo $$; exec sleep 600")
    monkeypatch.setattr(tools, "START_S", 0.3)
    with pytest.raises(BenchError, match="the performance consumer did not end within"):
        local.consume(1, "topic", 5, "group")
    assert not Path("/proc", (tmp_path / "consumer.log").read_text().strip()).exists()
