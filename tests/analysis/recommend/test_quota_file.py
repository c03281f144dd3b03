"""A quota file that is written is one that is read, whatever clients are called."""

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.advice import Confidence
from analysis.kernel.censoring import Answer
from analysis.kernel.target import parse_target
from analysis.kernel.units import Unit
from analysis.recommend.choices import Choices, Per
from analysis.recommend.needs import Need, Recommendation
from analysis.recommend.quota_file import write
from analysis.recommend.wording import quoted
from analysis.replay.recording import Circumstances, place
from config.document import read_document
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.rate import Window
from quotas.stores.file import load

TARGET = "p99 throttle < 100 ms"
PERIOD = Circumstances(
    begin_ms=1_772_366_400_000,
    end_ms=1_772_370_000_000,
    origins_ms={"": 0},
    window=Window(),
    windows=1,
    modes=("enforce",),
    interval_ms=1000,
    documents=3600,
    missing_documents=7,
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


def need(kind: QuotaKind = QuotaKind.PRODUCER_BYTE_RATE, quota: float = 1.2e6, now: str = "unlimited") -> Need:
    unit = Unit(place("demo", "edge\n-1"), 3, "", "")
    return Need(kind, quota, 1.01e6, unit, 2.5e6, 3e6, 0.9e6, now, Confidence.LOW, Answer.INTERVAL)


def choices(per: Per) -> Choices:
    return Choices(parse_target(TARGET), per)


def written(found: list[Recommendation], per: Per, folder: Path) -> Path:
    path = folder / "quotas.yaml"
    path.write_text(write(found, choices(per), TARGET, PERIOD), encoding="utf-8")
    return path


@pytest.mark.parametrize("per", Per)
def test_the_file_says_what_is_recommended(per: Per, tmp_path: Path) -> None:
    consume = need(QuotaKind.CONSUMER_BYTE_RATE, 50_000)
    user, client_id = ("alice" if per is not Per.CLIENT_ID else ""), ("app" if per is not Per.USER else "")
    found = load(written([Recommendation(user, client_id, (need(), consume))], per, tmp_path))
    limits = {QuotaKind.PRODUCER_BYTE_RATE: 1.2e6, QuotaKind.CONSUMER_BYTE_RATE: 50_000}
    assert found.policy.limits == {Entity(user or None, client_id or None): limits}
    assert found.warnings == ()


@given(st.lists(st.tuples(NAMES, NAMES), unique=True, max_size=4), NAMES)
def test_whatever_clients_are_called(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, str]], rule: str
) -> None:
    found = [Recommendation(user, client_id, (need(now=f"1 MB/s by {rule}"),)) for user, client_id in names]
    path = written(
        [*found, Recommendation(rule, rule, (need(),), "too little data")], Per.PAIR, tmp_path_factory.mktemp("q")
    )
    assert set(load(path).policy.limits) == {Entity(user, client_id) for user, client_id in names}


@given(
    st.sampled_from(["yes", "No", "null", "~", "010", "1e3", "<default>", "a: b", "a#b", " a ", "-", "y", "2026-01-01"])
)
def test_a_name_is_a_name_to_every_reader(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = tmp_path_factory.mktemp("q") / "name.yaml"
    path.write_text(f"name: {quoted(name)}\n", encoding="utf-8")
    found = read_document(path).root["name"]
    assert found == name
    assert not getattr(found, "ambiguous", True)


def test_it_explains_itself(tmp_path: Path) -> None:
    refused = Recommendation("bob", "", (need(),), "too little data: used in 4 s")
    text = written(
        [Recommendation("alice", "", (need(now="2 MB/s by user=<default>"),)), refused], Per.USER, tmp_path
    ).read_text()
    assert f"the smallest that meet `{TARGET}`" in text
    assert "and 15% more as headroom" in text
    assert "7 of 3607 documents are missing" in text
    assert "needs 1.01 MB/s (broker 3, edge\\n-1); recorded p99 2.5 MB/s, most 3 MB/s in a second" in text
    assert "now 2 MB/s by user=<default>; confidence low (held up while recorded: interval" in text
    assert "# {user: bob}: too little data: used in 4 s; it would be producer_byte_rate 1.2MB" in text
    assert f"{datetime.fromisoformat('2026-03-01T12:00:00+00:00'):%Y-%m-%d %H:%M:%S}" in text


def test_nobody_gets_a_quota(tmp_path: Path) -> None:
    assert load(written([Recommendation("", "", (need(),), "no name")], Per.USER, tmp_path)).policy.limits == {}
