"""The arithmetic of the report: what is compared with what, and when an aim is met."""

from dataclasses import replace

import pytest

from bench.measure import Sample
from bench.programs import DIRECT, HAPROXY, SLUICE
from bench.report import Spread, lines_of, load_lines, ratios, short, values_of, verdict
from bench.rows import Aim, Client, Load, Measure, Row

CPU = "cpu_us_per_request"
ROW = Row("small", "small requests", Measure.CPU_PER_REQUEST, Load(64), aim=Aim(1.5))
LATENCY = Row("latency", "added", Measure.LATENCY, Load(16, rate_per_s=2000))
START = Row("start", "to listening", Measure.START, Load(1), aim=Aim(2000, is_ratio=False))


def cpu(*values: float) -> list[dict[str, float]]:
    return [{CPU: value} for value in values]


def test_ratios_compare_samples_of_the_same_round() -> None:
    samples = {HAPROXY: cpu(10, 20, 40), SLUICE: cpu(15, 30, 60)}
    assert ratios(ROW, CPU, SLUICE, samples) == [1.5, 1.5, 1.5]


def test_a_ratio_to_nothing_is_left_out() -> None:
    assert ratios(ROW, CPU, SLUICE, {HAPROXY: cpu(0, 10), SLUICE: cpu(5, 12)}) == [1.2]


def test_row_without_haproxy_has_no_ratio_and_verdict() -> None:
    samples = {SLUICE: cpu(15)}
    assert ratios(ROW, CPU, SLUICE, samples) == []
    assert verdict(ROW, CPU, samples) == ("≤ 1.5 x", None)


@pytest.mark.parametrize(("ours", "met"), [((15, 15, 99), True), ((15, 15.1, 16), False)])
def test_an_aim_is_held_against_the_median_ratio(ours: tuple[float, ...], met: bool) -> None:
    samples = {HAPROXY: cpu(10, 10, 10), SLUICE: cpu(*ours)}
    assert verdict(ROW, CPU, samples) == ("≤ 1.5 x", met)


@pytest.mark.parametrize(("listening_ms", "met"), [(1999, True), (2001, False)])
def test_an_absolute_aim_needs_no_haproxy(listening_ms: float, met: bool) -> None:
    assert verdict(START, "listening_ms", {SLUICE: [{"listening_ms": listening_ms}]}) == ("≤ 2000", met)


def test_latency_is_the_difference_to_direct_of_same_round() -> None:
    samples: dict[str, list[Sample]] = {
        DIRECT: [{"p50_us": 30, "p99_us": 50}, {"p50_us": 90, "p99_us": 99}],
        HAPROXY: [{"p50_us": 60, "p99_us": 90}, {"p50_us": 121, "p99_us": 150}],
    }
    assert values_of(LATENCY, "p50_us", HAPROXY, samples) == [30, 31]
    assert values_of(LATENCY, "p50_us", SLUICE, samples) == []


def test_a_spread_shows_its_ends_only_when_they_differ() -> None:
    assert str(Spread.of([3.0, 1.0, 2.0])) == "2.00 (1.00..3.00)"
    assert str(Spread.of([2.0])) == "2.00"
    assert Spread.of([]) is None


@pytest.mark.parametrize(("value", "text"), [(1234.5, "1,234"), (12.34, "12.3"), (0.123, "0.12"), (-56.78, "-56.8")])
def test_figures_are_rounded_to_three_digits(value: float, text: str) -> None:
    assert short(value) == text


def test_a_row_says_whether_its_aim_is_met() -> None:
    (line,) = lines_of(ROW, {HAPROXY: cpu(10), SLUICE: cpu(16)})
    assert line.split() == ["small", "µs", "CPU/request", "10.0", "16.0", "1.60", "≤", "1.5", "x", "NOT", "MET"]


def busy(requests_per_s: float) -> list[Sample]:
    return [{"requests_per_s": requests_per_s, "proxy_busy": 1.0, "load_busy": 0.9}]


@pytest.mark.parametrize(("reached", "limited"), [(50_000.0, False), (95_000.0, True)])
def test_a_load_without_headroom_is_named(reached: float, limited: bool) -> None:
    _, line = load_lines(ROW, {DIRECT: busy(100_000.0), SLUICE: busy(reached)})
    assert ("LIMIT" in line) is limited


def test_the_direct_way_and_a_paced_load_need_no_headroom() -> None:
    samples = {DIRECT: busy(2_000.0), SLUICE: busy(2_000.0)}
    assert not any("LIMIT" in line for line in load_lines(LATENCY, samples))
    assert "LIMIT" not in load_lines(ROW, samples)[0]


@pytest.mark.parametrize(("proxy", "load", "limited"), [(0.6, 1.0, True), (1.0, 1.0, False), (0.4, 0.3, False)])
def test_load_without_pauses_is_named_as_the_limit(proxy: float, load: float, limited: bool) -> None:
    sample = {"requests_per_s": 1_000.0, "proxy_busy": proxy, "load_busy": load}
    (line,) = load_lines(replace(ROW, load=Load(64, tls=True)), {SLUICE: [sample]})
    assert ("LIMIT" in line) is limited
    assert "directly" not in line


@pytest.mark.parametrize(("client", "unit"), [(Client.REPLAY, "100 requests/s"), (Client.JAVA, "80 MB/s")])
def test_load_on_a_real_broker_is_never_named_as_limit(client: Client, unit: str) -> None:
    sample = {"requests_per_s": 100.0, "mb_per_s": 80.0, "proxy_busy": 0.2, "load_busy": 1.0}
    lines = load_lines(replace(ROW, load=Load(32, client=client)), {DIRECT: [sample], SLUICE: [sample]})
    assert all(unit in line and "LIMIT" not in line for line in lines)


def test_a_row_without_load_has_no_load_lines() -> None:
    assert load_lines(START, {SLUICE: [{"listening_ms": 300.0}]}) == []
