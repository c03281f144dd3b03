"""``sluice quotas`` beside kafka-configs, on real clusters: each sees what the other has set, in the same words."""

import itertools
import shlex
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from proxy.manage.cli import quotas
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.file import load
from tests.harness.configs import KafkaConfigs
from tests.harness.jars import LAST_ON_ZOOKEEPER, NEWEST_BROKER
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.zookeeper import ZooKeeper
from tests.integration.conftest import fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CLIENT_KINDS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
LIMITS = ("1024", "12345678", "0.001", "12.5")
EVERYTHING = (
    "--entity-type users",
    "--entity-type clients",
    "--entity-type users --entity-type clients",
    "--entity-type ips",
)
ODD = ("<default>", 'it\'s "quoted"', "a b", "CN=app,OU=büro", "100%", "$HOME", "-x", "no")


def run(line: str, *where: str) -> Result:
    words = shlex.split(line)
    done = CliRunner().invoke(quotas, [words[0], *where, *words[1:]], prog_name="sluice quotas")
    assert done.exit_code == 0, done.output
    return done


def lines(text: str) -> list[str]:
    """The tool prints entities in the order of a hash."""
    return sorted(text.splitlines())


def test_sluice_quotas_and_kafka_configs_see_each_others_quotas(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Either asks any of the brokers, which hear of a change one after another: so what is read is waited for."""
    user, client_id = fresh_name("manage-user"), fresh_name("manage-client")
    ours = ("--bootstrap-server", cluster.bootstrap)
    pair = f"--user {user} --client {client_id}"
    of_user = f"Quota configs for user-principal '{user}' are consumer_byte_rate=1.048576E7\n"
    with KafkaConfigs(NEWEST_BROKER, *ours) as configs:

        def alike(described: str) -> tuple[bool, str]:
            theirs = configs.run("--describe", *shlex.split(described))
            return run(f"describe {described}", *ours).stdout == theirs and "are " in theirs, theirs

        configs.run(*shlex.split(f"--alter {pair} --add-config producer_byte_rate=1024,request_percentage=12.5"))
        assert run(f"alter user={user} consumer_byte_rate=10MiB", *ours).stdout == configs_said(user)
        for described in (pair, f"--user {user}", f"--entity-type users --entity-name {user} --entity-type clients"):
            wait_until(partial(alike, described), is_so=itemgetter(0))

        exported = tmp_path / "quotas.yaml"
        of_all = yaml.safe_load(run("export", *ours).stdout)["quotas"]  # of other tests, too
        exported.write_text(yaml.safe_dump({"quotas": [each for each in of_all if each["entity"].get("user") == user]}))
        run(f"delete user={user} client-id={client_id}", *ours)
        run(f"delete user={user}", *ours)
        wait_until(lambda: configs.run("--describe", "--user", user), equals="")
        configs.run(*shlex.split(f"--alter {pair} --add-config producer_byte_rate=2048"))

        def imported() -> dict[Entity, dict[QuotaKind, float]]:
            taken = tmp_path / "taken.yaml"
            taken.write_text("quotas: []\n")
            run(f"import --from cluster --from-address {cluster.bootstrap} --file {taken} --yes")
            return {each: dict(of) for each, of in load(taken).policy.limits.items() if each.user == user}

        wait_until(imported, equals={Entity(user, client_id): {QuotaKind.PRODUCER_BYTE_RATE: 2048}})
        configs.run(*shlex.split(f"--alter {pair} --delete-config producer_byte_rate"))
        wait_until(lambda: configs.run("--describe", *shlex.split(pair)), equals="")
        assert "+ user=" in run(f"import {exported} --dry-run", *ours).stdout
        assert configs.run("--describe", "--user", user) == ""
        assert "2 entities changed" in run(f"import {exported} --yes", *ours).stdout
        wait_until(lambda: configs.run("--describe", "--user", user), equals=of_user)
        run(f"delete user={user} client-id={client_id}", *ours)
        run(f"delete user={user}", *ours)


def configs_said(user: str) -> str:
    return f"Completed updating config for user {user}.\n"


# ------------------------------------------------------------------------------------------------------- the matrix


@pytest.fixture(scope="module", params=["cluster", "zookeeper"])
def store(request: pytest.FixtureRequest) -> Iterator[tuple[tuple[str, ...], KafkaConfigs]]:
    """What leads ours to an empty store, and kafka-configs for the brokers of it."""
    if request.param == "cluster":
        with KafkaCluster() as kafka, KafkaConfigs(NEWEST_BROKER, "--bootstrap-server", kafka.bootstrap) as configs:
            yield ("--bootstrap-server", kafka.bootstrap), configs
        return
    with (
        ZooKeeper() as zookeeper,
        KafkaCluster(version=LAST_ON_ZOOKEEPER, zookeeper=zookeeper.connect) as kafka,
        KafkaConfigs(LAST_ON_ZOOKEEPER, "--bootstrap-server", kafka.bootstrap) as configs,
    ):
        yield ("--zookeeper", zookeeper.connect), configs


@pytest.mark.matrix
def test_every_set_of_limits_and_every_kind_of_entity_is_described_in_the_same_words(
    store: tuple[tuple[str, ...], KafkaConfigs],
) -> None:
    ours, configs = store
    sets = [each for size in range(1, 5) for each in itertools.combinations(range(4), size)]
    whom = [["--user", name] for name in ODD] + [["--client", name] for name in ODD]
    whom += [["--user-defaults"], ["--client-defaults"], ["--user-defaults", "--client", "web"]]
    whom += [["--user", "alice", "--client-defaults"], ["--user-defaults", "--client-defaults"]]
    for number, entity in enumerate(whom):
        limits = ",".join(f"{CLIENT_KINDS[each]}={LIMITS[each]}" for each in sets[number % len(sets)])
        configs.run("--alter", *entity, "--add-config", limits)
    for address in ("10.0.0.1", "10.0.0.2"):
        run(f"alter ip={address} connection_creation_rate=7", *ours)
    run("alter ip-default connection_creation_rate=100", *ours)
    if "--zookeeper" in ours:  # a broker with KRaft refuses it
        configs.run("--alter", "--user", "zero", "--add-config", "producer_byte_rate=0,consumer_byte_rate=5")
        assert "producer_byte_rate=0.0" in run("describe --user zero", *ours).stdout
    for everything in EVERYTHING:
        theirs = configs.run("--describe", *everything.split())
        mine = run(f"describe {everything}", *ours).stdout
        assert lines(mine) == lines(theirs)
        assert mine


@pytest.mark.matrix
def test_ten_thousand_entities_move_over_and_back(store: tuple[tuple[str, ...], KafkaConfigs], tmp_path: Path) -> None:
    ours, _ = store
    file, empty = tmp_path / "many.yaml", tmp_path / "none.yaml"
    rules = (f"  - {{entity: {{user: u{number}}}, producer_byte_rate: {number + 1}}}" for number in range(10_000))
    file.write_text("\n".join(["quotas:", *rules]) + "\n")
    empty.write_text("quotas: []\n")
    assert run(f"import {file} --replace --yes", *ours).stdout.endswith("entities changed\n")
    there = tmp_path / "there.yaml"
    there.write_text(run("export", *ours).stdout)
    assert run(f"import {there} --replace --dry-run", "--file", str(file)).stdout == "nothing to change\n"
    where = ["--from", "zookeeper" if "--zookeeper" in ours else "cluster", "--from-address", ours[1]]
    came = run(shlex.join(["import", *where, "--yes"]), "--file", str(empty)).stdout
    assert came.endswith("10000 entities changed\n")
    assert run(f"import {empty} --replace --yes", *ours).stdout == "nothing to change\n"
    empty.write_text("quotas: []\n")
    assert run(f"import {empty} --replace --yes", *ours).stdout.endswith("10000 entities changed\n")
    assert run("describe", *ours).stdout == ""
