"""The present quota file is left as its author wrote it, but for limits that are recommended."""

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from analysis.errors import AnalysisError
from analysis.kernel.censoring import Answer
from analysis.kernel.target import parse_target
from analysis.kernel.units import Unit
from analysis.recommend.choices import Choices
from analysis.recommend.need import Confidence, Need
from analysis.recommend.present_file import Present, merged, read
from analysis.recommend.quota_counters import Quota
from analysis.recommend.verdicts import Fate, lines, summary, verdicts
from config.problems import ConfigError, Problem
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.stores.file import load

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
EACH = Default.DEFAULT
CHOICES = Choices(parse_target("p99 throttle < 100 ms"))
TEXT = """\
# ours; ask before you change it
groups:
  analytics: [alice, bob]
caps:
  - {entity: {user-group: analytics}, producer_byte_rate: 50MiB}
quotas:
  # the shop
  - entity: {user: shop}
    producer_byte_rate: 10MiB   # since May
    consumer_byte_rate: 0x10
  - {entity: {user-group: analytics}, consumer_byte_rate: 50MiB, max_delay: 5s}
  - {entity: {client-id: {prefix: "team-a-"}}, producer_byte_rate: 20MiB, shared: false}
  - {entity: {user: 'old', client-id: {default: true}}, producer_byte_rate: 1MB}
  - entity:
      user: {default: true}
    producer_byte_rate: 5MB
    proposed:
      producer_byte_rate: 4MB
  - {entity: {user: trial}, producer_byte_rate: 3MB, mode: shadow}
  - {entity: {ip: 10.0.0.1}, connection_creation_rate: 7}
  - {entity: {user: known}, producer_byte_rate: 3200000}
""".replace("0x10", "16KiB")


def need(quota: float = 3.2e6, kind: QuotaKind = PRODUCE, *, low_because: str = "") -> Need:
    unit = Unit("demo", "edge-1", 3, "", "")
    trust = Confidence.LOW if low_because else Confidence.HIGH
    found = Need(kind, quota, 2.7e6, unit, 2.5e6, 3e6, 0.9e6, trust, Answer.EXACT)
    return replace(found, low_because=low_because)


def of(user: Name | None, client_id: Name | None, *needs: Need) -> dict[Quota, Need]:
    return {(Entity(user, client_id), each.kind): each for each in needs}


FOUND = {
    **of("shop", None, need(), need(5e4, FETCH, low_because="recorded for only 3 h")),
    **of(Group("analytics"), None, need(9e6, FETCH)),
    **of(None, Prefix("team-a-"), need(7e6)),
    **of(EACH, None, need(6e6)),
    **of("trial", None, need(2e6)),
    **of("known", None, need(3.2e6)),
    **of("stranger", None, need()),
}


@pytest.fixture
def present(tmp_path: Path) -> Present:
    path = tmp_path / "quotas.yaml"
    path.write_text(TEXT)
    return read(path)


def test_limits_are_changed_and_nothing_else(present: Present) -> None:
    text = merged(present, verdicts(present.policy, FOUND, CHOICES, accept_low=False))
    expected = TEXT.replace("10MiB   # since", "3200000   # since").replace("20MiB, shared", "7000000, shared")
    expected = expected.replace("producer_byte_rate: 5MB\n", "producer_byte_rate: 6000000\n")
    assert text == expected.replace("3MB, mode: shadow", "2000000, mode: shadow")
    assert present.path.read_text() == TEXT


def test_recommendation_lines_list_each_change_with_its_reason(present: Present) -> None:
    found = verdicts(present.policy, FOUND, CHOICES, accept_low=False)
    recorded = "recorded p99 2.4 MiB/s, most 2.9 MiB/s in a second and 879 KiB/s over the window"
    because = f"needs 2.6 MiB/s (broker 3, edge-1); {recorded}; confidence"
    low = f"left, recorded for only 3 h: {because} low"
    assert list(lines(found)) == [
        f"~ user=shop producer_byte_rate 10485760 → 3200000 ({because} high)",
        f"~ client-id-prefix=team-a- producer_byte_rate 20971520 → 7000000 ({because} high)",
        f"~ user=<default> producer_byte_rate 5000000 → 6000000 ({because} high)",
        f"~ user=trial producer_byte_rate 3000000 → 2000000 ({because} high)",
        f"! user=shop consumer_byte_rate 16384 → 50000 ({low})",
        "? user=old, client-id=<default> producer_byte_rate 1000000: unused, left unchanged",
        "x user-group=analytics consumer_byte_rate 52428800: max_delay is not replayed",
        "x ip=10.0.0.1 connection_creation_rate 7: connection_creation_rate is not replayed",
    ]
    assert summary(found, present.policy, ["2 clients producing under no quota"]) == (
        "4 to change, 1 as recommended, 1 left for low confidence, 1 unused, 2 left as they are, "
        "1 cap left unchanged: none is recommended, 2 clients producing under no quota"
    )


def test_low_confidence_recommendation_is_written_when_accepted(present: Present) -> None:
    found = verdicts(present.policy, FOUND, CHOICES, accept_low=True)
    assert Fate.LOW not in {each.fate for each in found}
    assert "consumer_byte_rate: 50000" in merged(present, found)


def test_refused_recommendation_leaves_the_file_unchanged(present: Present) -> None:
    few = of("shop", None, replace(need(), refused="too little data: used in 4 s"))
    found = verdicts(present.policy, few, CHOICES, accept_low=True)
    assert merged(present, found) == TEXT
    assert "x user=shop producer_byte_rate 10485760: too little data: used in 4 s" in list(lines(found))


def test_long_list_of_unused_quotas_is_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(
        "quotas:\n" + "".join(f"- {{entity: {{user: u{n}}}, producer_byte_rate: 1MB}}\n" for n in range(50))
    )
    said = list(lines(verdicts(read(path).policy, {}, CHOICES, accept_low=False)))
    assert len(said) == 21
    assert said[-1] == "? and 30 more unused"


def test_a_proposal_stands_beside_the_limit(present: Present) -> None:
    found = verdicts(present.policy, FOUND, CHOICES, accept_low=False)
    text = merged(present, found, propose=True)
    expected = TEXT.replace(
        "    consumer_byte_rate: 16KiB\n",
        "    consumer_byte_rate: 16KiB\n    proposed: {producer_byte_rate: 3200000}\n",
    )
    expected = expected.replace("shared: false}", "shared: false, proposed: {producer_byte_rate: 7000000}}")
    expected = expected.replace(
        "    proposed:\n      producer_byte_rate: 4MB\n", "    proposed: {producer_byte_rate: 6000000}\n"
    )
    assert text == expected.replace("3MB, mode: shadow", "2000000, mode: shadow"), (
        "what holds nobody is on trial already"
    )
    assert "→ proposed: 3200000 (" in next(lines(found, propose=True))


NEW = "{producer_byte_rate: 3200000}"
IN_BRACES = "quotas:\n- {entity: {user: shop}, producer_byte_rate: 1, consumer_byte_rate: 2, proposed: "
BY_LINES = "quotas:\n- producer_byte_rate: 1\n  entity:\n    user: shop\n"
LAST_LINE = "quotas:\n- entity: {user: shop}\n  producer_byte_rate: 1MB"
FORMS = (
    (
        '{"quotas":[{"entity": {"user":"shop"}, "producer_byte_rate":1}]}',
        '{"quotas":[{"entity": {"user":"shop"}, "producer_byte_rate":1, "proposed": {"producer_byte_rate": 3200000}}]}',
    ),
    (
        "quotas:\r\n- entity: {user: shop}\r\n  producer_byte_rate: 1MB\r\n",
        f"quotas:\r\n- entity: {{user: shop}}\r\n  producer_byte_rate: 1MB\r\n  proposed: {NEW}\r\n",
    ),
    (
        f"{IN_BRACES}{{consumer_byte_rate: 3}}}}\n",
        f"{IN_BRACES}{{consumer_byte_rate: 3, producer_byte_rate: 3200000}}}}\n",
    ),
    (
        f"{BY_LINES}  # theirs\n\n# the end\ncaps: []\n",
        f"{BY_LINES}  proposed: {NEW}\n  # theirs\n\n# the end\ncaps: []\n",
    ),
    (f"{LAST_LINE}   # since May", f"{LAST_LINE}   # since May\n  proposed: {NEW}\n"),
)


@pytest.mark.parametrize(("before", "after"), FORMS)
def test_proposal_is_written_in_every_form_of_file(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_bytes(before.encode())
    present = read(path)
    text = merged(present, verdicts(present.policy, FOUND, CHOICES, accept_low=False), propose=True)
    assert text == after


def test_merged_file_that_does_not_parse_is_refused_with_places(
    present: Present, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: str, _: str) -> NoReturn:
        raise ConfigError([Problem(file, 8, 25, "quotas[0]", "is too much"), Problem(file, 9, 1, "", "so is this")])

    monkeypatch.setattr("analysis.recommend.present_file.parse", refuse)
    with pytest.raises(AnalysisError) as raised:
        merged(present, verdicts(present.policy, FOUND, CHOICES, accept_low=False))
    path = present.path
    assert str(raised.value) == (
        f"{path}: the limits above cannot be written into it, and nothing is written: "
        f"{path}:8:25: quotas[0]: is too much; {path}:9:1: so is this"
    )


def test_merged_file_is_read_back_with_recommended_limits(present: Present, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(merged(present, verdicts(present.policy, FOUND, CHOICES, accept_low=True)))
    again = verdicts(load(path).policy, FOUND, CHOICES, accept_low=True)
    assert {each.fate for each in again} == {Fate.SAME, Fate.UNUSED, Fate.LEFT}


def test_a_file_that_changes_meanwhile_is_noticed(present: Present) -> None:
    assert present.is_unchanged()
    present.path.write_text(TEXT.replace("10MiB", "11MiB"))
    assert not present.is_unchanged()
    present.path.unlink()
    assert not present.is_unchanged()


def test_line_of_a_capped_client_says_what_caps_did(present: Present) -> None:
    alone, among, idle = (replace(need(), capped=True, by_caps=share) for share in (1.0, 0.5, 0.0))
    for mine, said in (
        (alone, "; throttled while recorded, by caps alone: a quota above the caps changes nothing)"),
        (among, "; throttled while recorded, by caps among others: a quota above the caps changes nothing)"),
        (idle, "; also under caps, which throttled nobody)"),
    ):
        assert next(lines(verdicts(present.policy, of("shop", None, mine), CHOICES, accept_low=False))).endswith(said)
