"""The index of reports, and links from page to page."""

import re
from pathlib import Path

from tests.analysis.report import by_hand
from tests.analysis.report.by_hand import client, documents, later
from tests.analysis.report.test_report import report


def hours(*at: int) -> dict[object, by_hand.Tables]:
    return {
        later(n): {
            "client": [client(later(n), bytes_in=1), client(later(n), bytes_in=2, user="bob", client_id="")],
            "documents": documents(later(n), [n]),
        }
        for n in at
    }


def period(hour: int, *more: str) -> tuple[str, ...]:
    return ("--from", f"{later(hour):%Y-%m-%dT%H:%MZ}", "--to", f"{later(hour + 1):%Y-%m-%dT%H:%MZ}", *more)


def links(page: Path) -> dict[str, Path]:
    """Return the text and the target of each link, which must be there."""
    found = re.findall(r'<a[^>]* href="([^"]*)"[^>]*>(.*?)</a>', page.read_text(encoding="utf-8"))
    targets = {re.sub("<.*?>", "", said): (page.parent / href).resolve() for href, said in found}
    assert all(target.is_file() for target in targets.values()), targets
    return targets


def test_reports_are_linked_in_order_of_time_and_listed(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", hours(0, 1, 2))  # type: ignore[arg-type]  # datetimes
    last, first, middle = (report(tmp_path / "w", *period(hour)) for hour in (2, 0, 1))
    index = first.parent / "index.html"
    said = {name: f"2026-03-01 {12 + n}:00 to {13 + n}:00 UTC" for n, name in enumerate(("first", "middle", "last"))}
    assert links(first / "report.html") == {
        "all reports": index, f"after: {said['middle']}": middle / "report.html"
    }  # fmt: skip
    assert links(middle / "report.html") == {
        "all reports": index,
        f"before: {said['first']}": first / "report.html",
        f"after: {said['last']}": last / "report.html",
    }
    assert [*links(index)] == [said["last"], said["middle"], said["first"]]


def test_a_client_leads_to_its_own_report_of_the_same_period(tmp_path: Path) -> None:
    """Made before or after the report of everybody; the narrower one, if there are two."""
    by_hand.write(tmp_path / "w", hours(0, 1))  # type: ignore[arg-type]  # datetimes
    alice = report(tmp_path / "w", *period(0, "--client", "user=alice"))
    everybody = report(tmp_path / "w", *period(0))
    assert links(everybody / "report.html")["alice / app"] == alice / "report.html"
    assert "bob / (no client-id)" not in links(everybody / "report.html")
    bob = report(tmp_path / "w", *period(0, "--client", "user=bob,client-id=''"))
    app = report(tmp_path / "w", *period(0, "--client", "user=alice,client-id=app"))
    report(tmp_path / "w", *period(1, "--client", "user=alice,client-id=app"))
    found = links(everybody / "report.html")
    assert found["bob / (no client-id)"] == bob / "report.html"
    assert found["alice / app"] == app / "report.html"
    assert len(links(app.parent / "index.html")) == 2
    assert {path.parent for path in links(everybody.parent / "index.html").values()} == {
        everybody, alice.parent, bob.parent, app.parent
    }  # fmt: skip
