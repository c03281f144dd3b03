"""``sluice quotas describe``: what is selected, and how it is shown."""

import json
from pathlib import Path

import pytest

from proxy.manage.describing import as_data, as_table, as_text, select
from proxy.manage.grammar import QuotaArguments
from proxy.manage.wording import described
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.base import Loaded
from tests.proxy.manage.conftest import Run

P, C, R, M, I = (  # noqa: E741  as in ip
    QuotaKind.PRODUCER_BYTE_RATE,
    QuotaKind.CONSUMER_BYTE_RATE,
    QuotaKind.REQUEST_PERCENTAGE,
    QuotaKind.CONTROLLER_MUTATION_RATE,
    QuotaKind.CONNECTION_CREATION_RATE,
)
DEFAULT = Default.DEFAULT

KAFKA_SAYS = [
    (Entity("user1", "clientA"), {C: 2048, P: 1024, R: 200}, "user-principal 'user1', client-id 'clientA' are consumer_byte_rate=2048.0, request_percentage=200.0, producer_byte_rate=1024.0"),  # noqa: E501  what kafka-configs 4.3.1 printed
    (Entity("alice", DEFAULT), {P: 1024, C: 12345678, M: 5.5, R: 12.5}, "user-principal 'alice', the default client-id are producer_byte_rate=1024.0, consumer_byte_rate=1.2345678E7, controller_mutation_rate=5.5, request_percentage=12.5"),  # noqa: E501  as above
    (Entity(DEFAULT, DEFAULT), {R: 50, P: 10**7}, "the default user-principal, the default client-id are request_percentage=50.0, producer_byte_rate=1.0E7"),  # noqa: E501  as above
    (Entity("bob"), {P: 1, C: 2, M: 3}, "user-principal 'bob' are consumer_byte_rate=2.0, controller_mutation_rate=3.0, producer_byte_rate=1.0"),  # noqa: E501  as above
    (Entity("carol"), {P: 1, M: 3, R: 4}, "user-principal 'carol' are controller_mutation_rate=3.0, request_percentage=4.0, producer_byte_rate=1.0"),  # noqa: E501  as above
    (Entity("dave"), {C: 1, M: 3, R: 4}, "user-principal 'dave' are consumer_byte_rate=1.0, controller_mutation_rate=3.0, request_percentage=4.0"),  # noqa: E501  as above
    (Entity(None, "it's a 'quoted' one"), {M: 0.001, C: 5}, "client-id 'it's a 'quoted' one' are consumer_byte_rate=5.0, controller_mutation_rate=0.001"),  # noqa: E501  as above
    (Entity(DEFAULT), {P: 7}, "the default user-principal are producer_byte_rate=7.0"),
    (Entity(ip="1.2.3.4"), {I: 100}, "ip '1.2.3.4' are connection_creation_rate=100.0"),
    (Entity(ip=DEFAULT), {I: 10}, "the default ip are connection_creation_rate=10.0"),
]  # fmt: skip


@pytest.mark.parametrize(("entity", "limits", "line"), KAFKA_SAYS, ids=lambda value: str(value)[:30])
def test_a_line_is_what_kafka_configs_prints(entity: Entity, limits: dict[QuotaKind, float], line: str) -> None:
    assert described(entity, limits) == f"Quota configs for {line}"


def test_all_is_shown_and_what_kafka_does_not_have_is_called_so(run: Run, quota_file: Path) -> None:
    shown = run("describe --file {}", quota_file)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "Quota configs for user-principal 'alice' are request_percentage=12.5, producer_byte_rate=1024.0",
        "Quota configs for user-principal 'alice', the default client-id are consumer_byte_rate=1.0E7",
        "Sluice terms for user-principal 'alice', the default client-id are burst=2000ms",
        "Quota configs for the default user-principal are producer_byte_rate=1.048576E7",
        "Quota configs for client-id '<default>' are producer_byte_rate=2097152.0",
        "Sluice quota configs for client-id-prefix 'tmp-' are producer_byte_rate=1048576.0",
        "Sluice terms for client-id-prefix 'tmp-' are shared=false",
        "Quota configs for the default ip are connection_creation_rate=10.0",
        "Sluice cap configs for user-group 'analytics' are producer_byte_rate=5.24288E7",
    ]


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ("--user alice", [6]),
        ("user", [6, 10, 4]),
        ("--entity-type users", [6, 10, 4]),
        ("--entity-type users --entity-type clients", [9]),
        ("--entity-type users --entity-name alice --entity-type clients", [9]),
        ("--user alice --client-defaults", [9]),
        ("--client-defaults", []),
        ("--client '<default>'", [11]),
        ("client-id", [11, 12]),
        ("client-id-prefix=tmp-", [12]),
        ("user-group=analytics", [4]),
        ("user=alice user-default", [6, 10]),
        ("--ip-defaults", [13]),
        ("ip", [13]),
        ("--user nobody", []),
    ],
)
def test_the_filter_is_as_strict_as_that_of_kafka_configs(
    run: Run, quota_file: Path, asked: str, lines: list[int]
) -> None:
    shown = run(f"describe --file {{}} -o json {asked}", quota_file)
    assert shown.exit_code == 0
    data = json.loads(shown.stdout)
    places = [each["where"] for each in (*data["quotas"], *data.get("caps", ()))]
    assert places == [f"{quota_file}:{line}" for line in lines]


def test_describe_as_json_gives_quotas_caps_and_groups(run: Run, quota_file: Path) -> None:
    data = json.loads(run("describe --file {} -o json", quota_file).stdout)
    assert data["quotas"][1] == {
        "entity": {"user": "alice", "client-id": {"default": True}},
        "limits": {"consumer_byte_rate": 10_000_000},
        "burst": "2000ms",
        "where": f"{quota_file}:9",
    }
    assert data["caps"][0]["entity"] == {"user-group": "analytics"}
    assert data["groups"] == {"analytics": ["carol", "dave"]}


def test_describe_as_table_aligns_columns_with_terms(run: Run, quota_file: Path) -> None:
    lines = run("describe --file {} -o table user client-id-default", quota_file).stdout.splitlines()
    assert lines == [
        "user   client-id  consumer_byte_rate  terms         where",
        f"alice  <default>            10000000  burst=2000ms  {quota_file}:9",
    ]


def test_describe_of_empty_quota_file_prints_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    path.write_text("quotas: []\n")
    assert run("describe --file {}", path).output == ""
    assert json.loads(run("describe --file {} -o json", path).stdout)["quotas"] == []
    assert run("describe --file {} -o table", path).output == "where\n"


def test_no_name_moves_the_cursor_and_no_limit_breaks_json() -> None:
    policy = Policy({Entity("a\x1b[2Jb"): {R: float("inf")}, Entity("big"): {P: 2.0**63}})
    loaded = Loaded(policy, "1", "memory")
    listed = select(loaded, QuotaArguments())
    text = "\n".join([*as_text(policy, listed), *as_table(loaded, listed)])
    assert "\x1b" not in text
    data = json.loads(json.dumps(as_data(loaded, listed)))
    assert [each["limits"] for each in data["quotas"]] == [
        {"request_percentage": "Infinity"},
        {"producer_byte_rate": 2**63 - 1},
    ]


def test_limits_are_not_described(run: Run, quota_file: Path) -> None:
    asked = run("describe --file {} producer_byte_rate=1", quota_file)
    assert (asked.exit_code, "limits are for alter" in asked.output) == (2, True)


def test_a_target_is_needed_and_an_unreadable_one_is_told(run: Run, tmp_path: Path) -> None:
    assert run("describe").exit_code == 2
    unreadable = run("describe --file {}", tmp_path / "nowhere.yaml")
    assert (unreadable.exit_code, "no such file" in unreadable.output) == (1, True)
