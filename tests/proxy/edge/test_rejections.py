from structlog.testing import capture_logs

from protocol.errors import Cause, ProtocolError
from proxy.edge.stats import Rejections, Stats
from proxy.runtime.log_lines import MAX_KEYS, MINUTE_MS

NOT_TLS = ProtocolError(Cause.NOT_TLS, "no TLS")
BAD = ProtocolError(Cause.BAD_HEADER, "bad")


def lines(rejections: Rejections, *peers: str, error: ProtocolError = NOT_TLS, now_ms: int = 0) -> list[object]:
    with capture_logs() as logs:
        for peer in peers:
            rejections.count("client", error, peer, now_ms)
    return [(line["event"], line.get("peer") or line["number"]) for line in logs]


def test_rejections_are_logged_once_per_host_and_cause_and_counted() -> None:
    stats = Stats()
    rejections = Rejections(stats)
    assert lines(rejections, *("10.0.0.1:5", "10.0.0.1:6", "[::1]:5", "10.0.0.1:7")) == [
        ("connection closed", "10.0.0.1:5"),
        ("connection closed", "[::1]:5"),
    ]
    assert lines(rejections, "10.0.0.1:8", error=BAD) == [("connection closed", "10.0.0.1:8")]
    assert stats.rejected == {("client", Cause.NOT_TLS): 4, ("client", Cause.BAD_HEADER): 1}


def test_a_line_names_the_client_if_it_has_a_client_id() -> None:
    with capture_logs() as logs:
        Rejections(Stats()).count("client", BAD, "10.0.0.1:5", 0, client_id="orders")
        Rejections(Stats()).count("client", BAD, "10.0.0.1:5", 0)
    assert [line.get("client_id") for line in logs] == ["orders", None]


def test_rejections_without_log_line_are_summarized_after_interval() -> None:
    rejections = Rejections(Stats())
    lines(rejections, "10.0.0.1:5", "10.0.0.1:6", "10.0.0.1:7", "10.0.0.2:5")
    with capture_logs() as logs:
        rejections.flush(MINUTE_MS - 1)
        assert logs == []
        rejections.flush(MINUTE_MS)
        rejections.flush(MINUTE_MS)
    assert [(line["event"], line["of"], line["number"]) for line in logs] == [
        ("more connections closed", "10.0.0.1", 2)
    ]
    assert lines(rejections, "10.0.0.1:9", now_ms=MINUTE_MS) == [("connection closed", "10.0.0.1:9")]


def test_without_a_flush_in_between_the_count_comes_with_the_next_line() -> None:
    rejections = Rejections(Stats())
    lines(rejections, "10.0.0.1:5", "10.0.0.1:6")
    assert lines(rejections, "10.0.0.1:7", now_ms=MINUTE_MS) == [
        ("more connections closed", 1),
        ("connection closed", "10.0.0.1:7"),
    ]


def test_rejections_remember_bounded_number_of_hosts() -> None:
    rejections = Rejections(Stats())
    lines(rejections, *(f"host{number}:1" for number in range(MAX_KEYS)))
    assert lines(rejections, "one-more:1", "and-another:1") == [("connection closed", "one-more:1")]
    assert len(rejections._lines.seen) == MAX_KEYS + 1
    assert lines(rejections, "host5:2") == []
    with capture_logs() as logs:
        rejections.flush(MINUTE_MS)
    assert {(line["of"], line["number"]) for line in logs} == {("others", 1), ("host5", 1)}


def test_rejections_about_a_name_are_logged_once_per_name() -> None:
    rejections = Rejections(Stats())
    with capture_logs() as logs:
        for peer, name in (("10.0.0.1:5", "b7"), ("10.0.0.2:5", "b7"), ("10.0.0.1:6", "b8")):
            rejections.count("client", NOT_TLS, peer, 0, about=name)
    assert [line["peer"] for line in logs] == ["10.0.0.1:5", "10.0.0.1:6"]
