"""When a client is "as direct", and what the page says of it."""

from pathlib import Path

import pytest

from bench.clients.cells import AS_DIRECT, NOT_THERE, Cell, Outcome, Scenario, load, save
from bench.clients.table import BEGIN, END, PAGE, tables, with_tables

PRODUCED = {"records": 300, "readable": 300}


def cell(direct: Outcome, through: Outcome, scenario: Scenario = Scenario.PRODUCE, software: str = "one") -> Cell:
    return Cell(software, "1", "4.3.1", scenario, direct, through)


@pytest.mark.parametrize(
    ("direct", "through", "verdict"),
    [
        (PRODUCED, PRODUCED, AS_DIRECT),
        (PRODUCED, {"records": 300, "readable": 299}, "readable: 300 direct, 299 through Sluice"),
        (PRODUCED, {**PRODUCED, "escaped": True}, "escaped: None direct, True through Sluice"),
        (PRODUCED, {"error": "Broken"}, None),
        ({"steps": {"a": "ok", "b": "Refused"}}, {"steps": {"a": "ok", "b": "Refused"}}, AS_DIRECT),
        ({"steps": {"a": "ok"}}, {"steps": {"a": "Refused"}}, "a: ok direct, Refused through Sluice"),
    ],
)
def test_outcomes_that_differ_in_a_field_are_named_with_it(
    direct: Outcome, through: Outcome, verdict: str | None
) -> None:
    found = cell(direct, through).verdict
    assert found == verdict if verdict else found not in {AS_DIRECT, NOT_THERE}


@pytest.mark.parametrize(("rate", "is_same"), [(150, True), (67, True), (151, False), (66, False)])
def test_rates_may_differ_by_half(rate: int, is_same: bool) -> None:
    compared = cell({**PRODUCED, "bytes_per_s": 100}, {**PRODUCED, "bytes_per_s": rate}, Scenario.QUOTA)
    assert (compared.verdict == AS_DIRECT) is is_same


@pytest.mark.parametrize(
    "nothing", [{"records": 0, "committed": 0}, {"error": "Unsupported"}, {"steps": {"a": "Refused"}}]
)
def test_nothing_on_both_sides_is_not_as_direct(nothing: Outcome) -> None:
    assert cell(nothing, nothing).verdict == NOT_THERE
    assert cell(PRODUCED, nothing).verdict not in {AS_DIRECT, NOT_THERE}
    assert cell(nothing, PRODUCED).verdict not in {AS_DIRECT, NOT_THERE}


def test_each_difference_has_one_footnote() -> None:
    refused = {"steps": {"a": "Refused"}}
    worked = {"steps": {"a": "ok"}}
    shown = tables([cell(worked, refused, Scenario.ADMIN, name) for name in ("one", "two")])
    assert shown.count("differs [1]") == 2
    assert shown.count("\n1. ") == 1
    assert "[2]" not in shown


def test_a_scenario_that_a_client_has_no_calls_for_stays_blank() -> None:
    shown = tables([cell(PRODUCED, PRODUCED), cell(PRODUCED, PRODUCED, Scenario.ADMIN, "two")])
    assert "| one | 1 | as direct |  |" in shown
    assert "| two | 1 |  | as direct |" in shown


def test_a_part_that_is_run_again_takes_the_place_of_its_cells_alone(tmp_path: Path) -> None:
    file = tmp_path / "clients.json"
    save([cell(PRODUCED, PRODUCED), cell(PRODUCED, PRODUCED, Scenario.QUOTA)], file)
    save([cell(PRODUCED, {"records": 1})], file)
    assert {each.scenario: each.verdict == AS_DIRECT for each in load(file)} == {"produce": False, "quota": True}


def test_the_page_has_the_results() -> None:
    page = PAGE.read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert with_tables(page, load()) == page, "type: python -m bench.clients --table"
