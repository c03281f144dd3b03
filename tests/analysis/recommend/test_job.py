"""Recommended quotas are enough, and hardly more than that; and nobody is dropped in silence."""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.demand.sums import Circumstances
from analysis.kernel.censoring import Answer
from analysis.kernel.search import meets
from analysis.kernel.target import parse_target
from analysis.recommend.choices import Choices
from analysis.recommend.job import confidence_of, recommend, with_headroom
from analysis.recommend.need import Confidence, Need
from analysis.recommend.quota_counters import by_name, by_rules
from proxy.cli import cli
from quotas.kinds import QuotaKind
from quotas.rate import Window
from quotas.stores.file import load
from tests.analysis.golden import rows_of, sums_of, warehouse_of
from tests.analysis.loads import MB, Load, documents
from tests.analysis.records import Document, caps_of
from tests.analysis.whatif.recorded import CLOCK, held_up, now_and_then, uneven

pytestmark = [pytest.mark.spark, pytest.mark.slow]

THROTTLE = "p99 throttle < 3 s"
PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
FETCH = QuotaKind.CONSUMER_BYTE_RATE
LOADS = (
    Load("alice", "app", uneven(1.4 * MB, 1), limit=2 * MB, rule="user=alice"),
    Load("alice", "app", uneven(0.7 * MB, 2), broker=2, limit=2 * MB, rule="user=alice"),
    Load("bob", "bursts", now_and_then(30 * MB), instance="edge-2"),
    Load("bob", "reads", uneven(0.3 * MB, 6), instance="edge-2", word="fetch"),
    Load("carol", "", uneven(0.2 * MB, 3)),
    Load("dave", "sluice:other", uneven(0.1 * MB, 4)),
    Load("eve", "rare", np.where(np.arange(300) == 8, 5000.0, 0)),
    Load("fred", "tiny", uneven(40.0, 4)),
)


TENANT = "cap user-group=tenant"
HELD = (
    Load("gina", "app", uneven(0.5 * MB, 7), limit=2 * MB, rule="user=<default>", muted_s=np.full(300, 0.5)),
    Load("hank", "app", uneven(0.2 * MB, 8), limit=2 * MB, rule="user=<default>"),
    Load("ivan", "app", uneven(0.2 * MB, 9), limit=2 * MB, rule="user=<default>", muted_s=np.full(300, 0.5)),
)
"""Under a cap: who was held by it alone, who was not, and who was held by the quota as well."""


def under_a_cap(made: Iterable[Document]) -> Iterator[Document]:
    for document in made:
        rows = document["rows"]
        held = {"gina": 500, "hank": 0, "ivan": 300}
        cap = caps_of({"user": "gina", "client_id": "app"}, {TENANT: 700_000})
        rows["produce_caps"] = [cap if user in held else None for user in rows["user"]]
        rows["produce_cap_muted_ms"] = [held.get(user, 0) for user in rows["user"]]
        rows["produce_cap_rule"] = [TENANT if held.get(user) else None for user in rows["user"]]
        yield document


def test_client_throttled_by_caps_alone_is_marked_as_such(spark: SparkSession, tmp_path: Path) -> None:
    found = found_in(warehouse_of(spark, under_a_cap(documents([*HELD, LOADS[4]])), tmp_path), choices())
    needs = {each: found[f"user={each}", PRODUCE] for each in ("gina", "hank", "ivan", "carol")}
    assert {user: (need.capped, round(need.by_caps, 2)) for user, need in needs.items()} == {
        "gina": (True, 1.0),
        "hank": (True, 0.0),
        "ivan": (True, 0.6),
        "carol": (False, 0.0),
    }
    assert [user for user, need in needs.items() if need.by_caps_alone] == ["gina"]


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return warehouse_of(spark, documents(LOADS), tmp_path_factory.mktemp("recorded"))


def choices(target: str = THROTTLE, **more: Any) -> Choices:
    return Choices(parse_target(target), **more)


def found_in(warehouse: str, chosen: Choices, per: str = "user") -> dict[tuple[str, QuotaKind], Need]:
    sums = sums_of(warehouse)
    wanted = by_rules(sums, by_name(sums, per, chosen), chosen)
    found = recommend(sums, chosen, wanted, rows_of(warehouse))
    return {(entity.describe(), kind): need for (entity, kind), need in found.items()}


@pytest.mark.parametrize("target", [THROTTLE, "p95 delay < 2 s", "throttled share < 10 %"])
def test_recommended_quota_meets_the_target_and_hardly_more(recorded: str, target: str) -> None:
    found = found_in(recorded, choices(target))
    for user, drawn, kind in (("alice", LOADS[0], PRODUCE), ("bob", LOADS[2], PRODUCE), ("bob", LOADS[3], FETCH)):
        need = found[f"user={user}", kind]
        aim = parse_target(target)
        mean = drawn.demand.total_bytes[0] / drawn.demand.seconds
        less, enough = meets(drawn.demand, need.needed * np.array([[0.97], [1.0]]), aim, Window())
        assert enough.all()
        assert need.needed == pytest.approx(mean) or not less.all()
        assert need.needed >= mean * 0.999  # below it a backlog only grows
        assert need.limit == with_headroom(need.needed, 0.15)


def test_recommended_quota_follows_the_broker_that_needs_most(recorded: str) -> None:
    need = found_in(recorded, choices())["user=alice", PRODUCE]
    assert need.unit.broker == 1
    assert need.most == np.floor(LOADS[0].sent_bytes).max()
    assert need.p99 == np.sort(np.floor(LOADS[0].sent_bytes))[296]


def test_client_with_too_little_data_gets_no_quota(recorded: str) -> None:
    found = found_in(recorded, choices(), "client-id")
    assert {name: need.refused for (name, _), need in found.items() if need.refused} == {
        "client-id=bursts": "too little data: used in 5 s",
        "client-id=rare": "too little data: used in 1 s",
    }


def test_no_quota_is_below_the_floor(recorded: str) -> None:
    tiny = found_in(recorded, choices(entities=("user=fred",)))["user=fred", PRODUCE]
    assert (tiny.limit, tiny.needed) == (1000, 0)


def test_recommendation_from_throttled_records_covers_the_whole_demand(spark: SparkSession, tmp_path: Path) -> None:
    load_, due_bytes, _ = held_up(0.9 * MB)
    free = Load("eve", "free", due_bytes)
    found = found_in(warehouse_of(spark, documents([load_, free, CLOCK]), tmp_path), choices(), "client-id")
    held, known = (found[f"client-id={name}", PRODUCE] for name in ("held", "free"))
    assert held.answer is Answer.INTERVAL
    assert known.answer is Answer.EXACT
    assert held.needed >= 0.98 * known.needed


def test_the_command_writes_what_check_accepts(recorded: str, tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    arguments = ("--target", THROTTLE, "--out", str(path), "--per", "user", "--accept-low-confidence")
    ran = CliRunner().invoke(analyze, ["recommend", "--warehouse", recorded, *arguments])
    assert ran.exit_code == 0, ran.output
    assert "~ user=alice producer_byte_rate unlimited → " in ran.stderr
    assert "quotas per user: 6 to change, 1 left as they are" in ran.stderr
    assert {entity.user for entity in load(path).policy.limits} == {"alice", "bob", "carol", "dave", "fred"}
    assert "# x user=eve producer_byte_rate unlimited: too little data: used in 1 s" in path.read_text()
    config = tmp_path / "sluice.yaml"
    config.write_text(
        'cluster: {name: demo, bootstrap: ["127.0.0.1:19092"]}\n'
        'listeners: [{name: P, bind: "127.0.0.1:9092", advertise: 127.0.0.1, brokers: {"0-9": "9100-9109"}}]\n'
        f"quotas: {{store: {{path: {path}}}}}\n"
    )
    checked = CliRunner().invoke(cli, ["check", "-c", str(config)])
    assert checked.exit_code == 0
    assert checked.output.endswith(f"{config}: ok (5 quotas, 1 listener)\n")
    again = CliRunner().invoke(analyze, ["whatif", "--warehouse", recorded, "--quotas", str(path)])
    assert again.exit_code == 0, again.output


LIVE = """\
# ours
quotas:
  - {entity: {user: alice}, producer_byte_rate: 2MB}   # since May
  - {entity: {client-id: bursts}, producer_byte_rate: 9MB, burst: 2s}
  - {entity: {client-id: {default: true}}, producer_byte_rate: 9MB}
  - {entity: {user: nobody}, producer_byte_rate: 9MB}
"""
COMMAND = re.compile(r"^\S*sluice analyze (recommend .*?)(?:  +#.*)?$", re.MULTILINE)
PAGE = Path(__file__).parents[3] / "docs" / "analysis.md"


def test_recommend_commands_of_the_page_leave_the_live_file_unchanged(
    recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    live = tmp_path / "quotas.yaml"
    live.write_text(LIVE)
    (tmp_path / "sluice.yaml").write_text(
        'cluster: {name: demo, bootstrap: ["127.0.0.1:19092"]}\n'
        'listeners: [{name: P, bind: "127.0.0.1:9092", advertise: 127.0.0.1, brokers: {"0-9": "9100-9109"}}]\n'
        "quotas: {store: {path: quotas.yaml}}\n"
    )
    first, *others = [shlex.split(found) for found in COMMAND.findall(PAGE.read_text())]
    made = tmp_path / "recommended.yaml"
    for command in (first, *others):
        command[command.index("--warehouse") + 1] = recorded
        assert command[-2:] == ["--out", made.name]
        assert "--quotas" in command
    # Five minutes are little.
    ran = CliRunner().invoke(analyze, first)
    assert ran.exit_code == 1, ran.output
    assert live.read_text() == made.read_text() == LIVE
    assert "! user=alice producer_byte_rate 2000000 → " in ran.stderr
    assert "(left, recorded for only 5 min: needs" in ran.stderr
    assert "warning: 2 left out for low confidence: record for a week, or accept them with" in ran.stderr
    [proposing] = [command for command in others if "--propose" in command]
    made.unlink()
    ran = CliRunner().invoke(analyze, [*proposing, "--accept-low-confidence"])
    assert ran.exit_code == 0, ran.output
    assert live.read_text() == LIVE
    assert load(made).policy.limits == load(live).policy.limits
    assert "~ user=alice producer_byte_rate 2000000 → proposed: " in ran.stderr
    assert "x client-id=bursts producer_byte_rate 9000000: burst is not replayed" in ran.stderr
    assert "? user=nobody producer_byte_rate 9000000: unused" in ran.stderr
    assert f"{live.name}: 2 to change, 1 unused, 1 left as they are" in ran.stderr
    text = made.read_text().splitlines()
    assert text[0] == "# ours"
    assert re.fullmatch(r".*2MB, proposed: \{producer_byte_rate: \d+\}\}   # since May", text[2])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", THROTTLE, "--propose"], "--propose needs the present quotas"),
        (["--target", THROTTLE, "--quotas", "q", "--per", "user"], "--per is for a new file"),
        (["--target", THROTTLE, "--quotas", "nowhere.yaml"], "nowhere.yaml"),
        (["--target", "faster"], "is not a target; write it like"),
        (["--target", THROTTLE, "--per", "ip"], "--per"),
    ],
)
def test_wrong_recommend_argument_exits_with_2_and_says_why(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(analyze, ["recommend", "--warehouse", "nowhere", *arguments])
    assert ran.exit_code == 2
    assert said in ran.stderr


@given(st.floats(0, 1e15))
def test_recommended_limit_is_rounded_up_by_a_tenth_at_most(needed: float) -> None:
    rounded = with_headroom(needed, 0.0)
    assert needed <= rounded <= max(needed * 1.1 + 1e-9, np.ceil(needed))


def test_recommended_limit_includes_the_headroom() -> None:
    assert [with_headroom(each, 0.15) for each in (100.0, 1_000_000.0, 0.0)] == [120, 1_200_000, 0]


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("days", "missing", "answer", "confidence"),
    [
        (7, 0, Answer.EXACT, Confidence.HIGH),
        (7, 0, Answer.INTERVAL, Confidence.MEDIUM),
        (7, 0, Answer.UNKNOWN, Confidence.LOW),
        (1, 0, Answer.EXACT, Confidence.MEDIUM),
        (0.04, 0, Answer.EXACT, Confidence.LOW),
        (7, 20, Answer.EXACT, Confidence.LOW),
    ],
)
def test_confidence_comes_with_what_was_recorded(
    days: float, missing: int, answer: Answer, confidence: Confidence
) -> None:
    period = Circumstances(0, int(days * DAY_MS), 0, 1, Window(), 1, ("enforce",), 1000, 100, missing, 0)
    found, because = confidence_of(answer, period, [])
    assert found is confidence
    assert bool(because) is (confidence is Confidence.LOW)
