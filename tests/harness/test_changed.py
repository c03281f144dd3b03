"""``make test-changed`` chooses the tests that a change can break."""

import pytest

from tests.changed import affected_tests


@pytest.mark.parametrize(
    ("changed", "chosen", "left_out"),
    [
        ("quotas/rate.py", "tests/proxy/session/test_throttling.py", "tests/config/test_units.py"),
        ("analysis/report/job.py", "tests/analysis/report/test_report.py", "tests/proxy/session/test_throttling.py"),
        ("analysis/report/sql/ranks.sql", "tests/analysis/report/test_report.py", "tests/quotas/test_rate.py"),
        ("proxy/page/templates/page.css", "tests/proxy/page/test_browser.py", "tests/quotas/test_rate.py"),
        ("tests/quotas/test_rate.py", "tests/quotas/test_rate.py", "tests/config/test_units.py"),
        ("docs/quotas.md", "tests/deploy/test_links.py", "tests/quotas/test_rate.py"),
    ],
)
def test_change_selects_importers_and_affected_tests_its_folder(changed: str, chosen: str, left_out: str) -> None:
    selected = affected_tests([changed])
    assert chosen in selected
    assert left_out not in selected


def test_deleted_file_selects_affected_tests_its_folder() -> None:
    assert "tests/quotas/test_rate.py" in affected_tests(["quotas/no_longer_there.py"])


def test_no_change_selects_no_test() -> None:
    assert affected_tests([]) == []
