"""The sentences of a report say of which kinds they speak, and are true of all others, too."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from tests.analysis.report import by_hand
from tests.analysis.report.by_hand import HOUR, HOUR_MS, Row, client, quiet
from tests.analysis.report.test_report import report

ADDRESS: Row = {"user": None, "client_id": None, "ip": "10.0.0.5", "broker": -1}
REFUSED: Row = {
    **ADDRESS,
    "kind": "connection",
    "rule": "ip=<default>",
    "used": 1295,
    "throttled": 605,
    "muted_ms": 900,
}
NOBODY = "throttled while producing, consuming, sending requests or changing topics."
OF_605 = "605 of 1,295 connections were refused for their rate."


def answer(tmp_path: Path, tables: by_hand.Tables, *arguments: str) -> str:
    by_hand.write(tmp_path / "w", {HOUR: tables})
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(tmp_path / "w"), *arguments])
    assert made.exit_code == 0, made.output
    page = Path(made.output.splitlines()[-1]).read_text(encoding="utf-8")
    said = made.output.splitlines()[0]
    assert said in page
    return said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--client", "ip=10.0.0.5"), f"ip=10.0.0.5: {OF_605}"),
        (("--client", "user=alice"), f"user=alice was not {NOBODY}"),
        ((), f"No client was {NOBODY} {OF_605}"),
    ],
)
def test_refused_connections_are_told_beside_clients(tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    tables = {**quiet(), "client": [client(bytes_in=1), client(**ADDRESS)], "charged": [REFUSED]}
    assert answer(tmp_path, tables, *arguments) == expected


def test_kinds_of_throttles_are_told(tmp_path: Path) -> None:
    held = [{"kind": kind, "muted_ms": 500} for kind in ("produce", "request")]
    tables = {**quiet(), "charged": [*held, REFUSED]}
    assert (
        answer(tmp_path, tables)
        == f"1 of 1 client was throttled, for 1 s (producing, sending requests) in all. {OF_605}"
    )


def test_an_address_has_no_section_about_clients(tmp_path: Path) -> None:
    tables = {**quiet(), "client": [client(**ADDRESS)], "charged": [REFUSED]}
    by_hand.write(tmp_path / "w", {HOUR: tables})
    page = (report(tmp_path / "w", "--client", "ip=10.0.0.5") / "report.html").read_text(encoding="utf-8")
    assert "Who connected" in page
    assert not re.search("Who was throttled|Whose use|clients throttled|Where it goes", page)


def test_equal_members_are_the_others_on_the_page(tmp_path: Path) -> None:
    members = [f"member-{n:02}" for n in range(30)]
    who: Row = {"client_id": "app", "counter": 7, "rule": "user-group=a"}
    parts = [
        part
        for user in members
        for part in (
            {"user": user, "victim_user": user, "clients": 1, "caused_ms": 5000.0},
            {
                "user": None,
                "victim_user": user,
                "client_id": None,
                "is_rest": True,
                "clients": 29,
                "caused_ms": 145_000.0,
            },
        )
    ]
    tables = {
        **quiet(),
        "client": [client(user=user, **who) for user in members],
        "charged": [{"user": user, "used": 9, "muted_ms": 150_000, **who} for user in members],
        "counters": [{**who, "is_shared": True}],
        "muted": [
            {"user": user, "begin_ms": HOUR_MS, "end_ms": HOUR_MS + 1000, "muted_ms": 150_000, **who}
            for user in members
        ],
        "shared": [{**who, "victim_client_id": "app", **part} for part in parts],
    }
    by_hand.write(tmp_path / "w", {HOUR: tables})
    page = (report(tmp_path / "w") / "report.html").read_text(encoding="utf-8")
    section = page[page.index("Whose use throttled whom") : page.index("How close to their limits")]
    assert section.count("the others (29 clients)") == 30
    assert section.count("<td>itself</td>") == 30
    assert section.count("2 min 25 s") == section.count("2 min 30 s") / 2 == 30
