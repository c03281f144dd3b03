"""Which rows there are, and how they are chosen."""

from dataclasses import replace

import pytest

from bench.errors import BenchError
from bench.measure import FIGURES
from bench.programs import NO_QUOTAS, SLUICE
from bench.rows import ROWS, Client, Load, Measure, choose
from bench.run import variant_for
from bench.targets import Cores


def test_every_row_has_a_unique_name() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_every_measure_has_a_row_and_figures() -> None:
    assert {row.measure for row in ROWS} == set(Measure) == set(FIGURES)


def test_empty_pattern_list_chooses_every_row() -> None:
    assert choose([]) == list(ROWS)


def test_patterns_keep_the_order_of_the_report() -> None:
    assert [row.name for row in choose(["produce-1m", "small-*"])] == [
        "small-1",
        "small-64",
        "small-1000",
        "produce-1m",
    ]


def test_a_pattern_without_a_row_is_an_error_that_lists_them() -> None:
    with pytest.raises(BenchError, match="no row 'smal'; there are: small-1, "):
        choose(["small-1", "smal"])


def test_every_client_id_of_a_row_has_a_quota() -> None:
    for row in ROWS:
        assert row.load.client_ids <= row.entities


def test_load_is_written_in_the_words_of_the_generator() -> None:
    words = "connections=16 depth=4 bytes=256 api=produce rate=0 client_ids=1 rotate=0 tls=0 reconnect=0 resume=0"
    assert Load(16, 4, 256).words() == words
    assert Load(1, tls=True, reconnect=True, resume=True).words().endswith("tls=1 reconnect=1 resume=1")


def test_tls_row_equals_its_plain_row_but_for_tls() -> None:
    plain = {row.name: row.load for row in ROWS if not row.load.tls}
    beside = {row.name: row.load for row in ROWS if row.load.tls}
    names = {name: name.removeprefix("tls-").removesuffix("-tls") for name in beside}
    found = {name for name in names if names[name] in plain}
    assert found >= {"tls-small-64", "tls-produce-1m", "memory-idle-tls"}
    for name in found:
        assert replace(beside[name], tls=False) == plain[names[name]]


def test_the_rows_on_a_real_broker_have_aims_and_come_last() -> None:
    real = [row for row in ROWS if row.load.is_real]
    assert {row.name: row.aim and row.aim.limit for row in real} == {
        "real-small-32": 1.08,
        "real-pipelined": 1.1,
        "real-produce-16k": 1.05,
        "real-produce-64k": 0.95,
        "real-consume": 0.85,
    }
    assert choose(["real-*"]) == real == list(ROWS[-len(real) :])
    assert {row.load.client for row in real} == {Client.REPLAY, Client.JAVA}


@pytest.mark.parametrize("available", [[0, 1], [2, 3, 7]])
def test_the_proxy_has_a_core_of_its_own(available: list[int]) -> None:
    assert Cores.plan(available) == Cores(proxy=available[-1], load=available[0])


def test_plan_for_a_single_core_is_refused() -> None:
    with pytest.raises(BenchError, match="two cores"):
        Cores.plan([0])


def test_kinds_of_quotas_are_measured_beside_none_in_the_same_rounds() -> None:
    kinds = {row.name: row for row in ROWS if row.against == NO_QUOTAS}
    aims = {name: row.aim and row.aim.limit for name, row in kinds.items() if name.startswith("kinds-")}
    limits = {"bytes": 1.03, "stacked": 1.06, "time": 1.08, "mutations": 1.03, "all": 1.11}
    assert aims == {f"kinds-{kinds}": limit for kinds, limit in limits.items()}
    for row in kinds.values():
        assert variant_for(row, NO_QUOTAS) == replace(variant_for(row, SLUICE), kinds="none")
