"""``sluice quotas alter`` and ``delete`` on a quota file."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest

from proxy.manage import changing
from proxy.manage.changing import EntityChange
from quotas.entities import Entity
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Limits, Outcome
from quotas.stores.base import Loaded, QuotaStore, StoreError
from quotas.stores.file_store import FileStore
from tests.proxy.manage.conftest import QUOTAS, Run


def changes(path: Path) -> list[str]:
    """Return the lines that are other ones than before."""
    before, after = QUOTAS.splitlines(), path.read_text().splitlines()
    return [f"-{line}" for line in before if line not in after] + [f"+{line}" for line in after if line not in before]


@pytest.mark.parametrize(
    ("line", "said", "changed"),
    [
        (
            "alter --file {} --user alice --add-config producer_byte_rate=2048",
            "Completed updating config for user alice.",
            ["-    producer_byte_rate: 1024", "+    producer_byte_rate: 2048"],
        ),
        (
            "alter --file {} --user alice --delete-config request_percentage --add-config consumer_byte_rate=5",
            "Completed updating config for user alice.",
            ["-    request_percentage: 12.5", "+    consumer_byte_rate: 5"],
        ),
        (
            "alter --file {} user=bob user=eve client-id-default request_percentage=50",
            "\n".join(f"Completed updating config for user {user}, the default client." for user in ("bob", "eve")),
            [
                "+  - {entity: {user: bob, client-id: {default: true}}, request_percentage: 50}",
                "+  - {entity: {user: eve, client-id: {default: true}}, request_percentage: 50}",
            ],
        ),
        (
            "alter --file {} --ip-defaults --add-config connection_creation_rate=20",
            "Completed updating default config for ips in the cluster.",
            [
                "-  - {entity: {ip: {default: true}}, connection_creation_rate: 10}",
                "+  - {entity: {ip: {default: true}}, connection_creation_rate: 20}",
            ],
        ),
        (
            "delete --file {} user=alice request_percentage",
            "Completed updating config for user alice.",
            ["-    request_percentage: 12.5"],
        ),
        (
            "delete --file {} --user-defaults",
            "Completed updating default config for users in the cluster.",
            ["-  - {entity: {user: {default: true}}, producer_byte_rate: 10MiB}"],
        ),
    ],
)
def test_alter_changes_only_named_limits_and_reports_entity(
    run: Run, quota_file: Path, line: str, said: str, changed: list[str]
) -> None:
    done = run(line, quota_file)
    assert (done.exit_code, done.stdout) == (0, f"{said}\n")
    assert changes(quota_file) == changed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alter --file {} user=alice producer_byte_rate=2KiB", "~ user=alice producer_byte_rate 1024 → 2048"),
        ("alter --file {} user=bob producer_byte_rate=2KiB", "+ user=bob producer_byte_rate 2048"),
        ("alter --file {} user=alice producer_byte_rate=1KiB", "= user=alice"),
        (
            "delete --file {} user=alice",
            "- user=alice producer_byte_rate 1024\n- user=alice request_percentage 12.5",
        ),
    ],
)
def test_a_dry_run_prints_each_limit_and_writes_nothing(run: Run, quota_file: Path, line: str, said: str) -> None:
    done = run(f"{line} --dry-run", quota_file)
    assert (done.exit_code, done.stdout) == (0, f"{said}\n")
    assert quota_file.read_text() == QUOTAS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "alter --file {} user=alice --delete-config consumer_byte_rate",
            "Invalid config(s): consumer_byte_rate (of user=alice: it has producer_byte_rate, request_percentage)",
        ),
        ("delete --file {} user=alice nonsense=1", "'nonsense' is neither an entity nor a quota name"),
        ("alter --file {} user=alice request_percentage=-1", "error: user=alice: request_percentage: must be above 0"),
        ("alter --file {} --user alice --add-config nonsense=1", "nonsense: is no quota of user=alice"),
        (
            "alter --file {} user=alice connection_creation_rate=1",
            "connection_creation_rate: is no quota of",
        ),
        ("alter --file {} user-group=analytics producer_byte_rate=1", "changed by hand, in the quota file"),
        ("delete --file {} client-id-prefix=tmp-", "changed by hand, in the quota file"),
        ("delete --file {} user=zoe", "error: user=zoe has no quota"),
        ("delete --file {} --user-defaults --client '<default>'", "user=<default>, client-id='<default>' has no quota"),
        ("alter --file {} user=alice user=alice request_percentage=5", "1 of 2 entities were refused"),
    ],
)
def test_refused_alter_names_cause_and_leaves_file_unchanged(run: Run, quota_file: Path, line: str, said: str) -> None:
    done = run(line, quota_file)
    assert said in done.output
    assert done.exit_code == (2 if "neither" in said else 1)
    if "1 of 2" not in said:
        assert quota_file.read_text() == QUOTAS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alter --file {} user=alice", "no limits given"),
        ("alter --file {} producer_byte_rate=1", "no entity given"),
        ("alter --file {} user producer_byte_rate=1", "user without a name"),
        ("alter --file {} user=a request_percentage request_percentage=1", "is both set and removed"),
        ("delete --file {} user=alice request_percentage=1", "delete takes names of limits without values"),
        ("alter user=alice request_percentage=1", "give one of"),
    ],
)
def test_a_wrong_command_line_exits_2(run: Run, quota_file: Path, line: str, said: str) -> None:
    done = run(line, quota_file)
    assert (done.exit_code, said in done.output) == (2, True)


def test_a_file_that_somebody_else_has_changed_meanwhile_is_left(
    run: Run, quota_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = FileStore._load

    def load_and_be_late(store: FileStore) -> object:
        loaded = load(store)
        quota_file.write_text(QUOTAS.replace("1024", "4096"))
        return loaded

    monkeypatch.setattr(FileStore, "_load", load_and_be_late)
    done = run("alter --file {} user=alice producer_byte_rate=2048", quota_file)
    assert (done.exit_code, "has been changed: load it and try again" in done.output) == (1, True)
    assert "4096" in quota_file.read_text()


@pytest.mark.parametrize("word", ["user=\udcff", "client-id-prefix=\udcff"])
def test_a_name_that_is_no_text_is_refused(run: Run, quota_file: Path, word: str) -> None:
    """What is no UTF-8 on a command line."""
    for line in (f"alter --file {{}} {word} request_percentage=5", f"describe --file {{}} {word}"):
        done = run(line, quota_file)
        assert (done.exit_code, "is not UTF-8; type the name again" in done.output) == (2, True)
    assert quota_file.read_text() == QUOTAS


def test_a_long_name_is_given_to_the_store_whole(run: Run, quota_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here its beginning and a hash are enough; a broker would take these for a name."""
    given: list[object] = []
    alter = FileStore.alter

    def listening(store: FileStore, alteration: Alteration) -> list[Outcome]:
        given.extend(change.entity for change in alteration.changes)
        return alter(store, alteration)

    monkeypatch.setattr(FileStore, "alter", listening)
    name = "n" * 300
    assert run(f"alter --file {{}} user={name} request_percentage=5", quota_file).exit_code == 0
    assert run(f"delete --file {{}} user={name}", quota_file).exit_code == 0
    assert given == [{"user": name}] * 2
    assert quota_file.read_text() == QUOTAS


def test_other_stores_are_changed_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is that of the first one; what a later one meets is told with how far it came."""
    store = Batched()
    wanted = [EntityChange(Entity(f"u{number}"), {"request_percentage": 5.0}) for number in range(2_500)]
    loaded = Loaded(Policy(), "first", "memory")
    assert len(changing.make(store, loaded, wanted, dry_run=False)) == 2_500
    assert store.asked == [(1_000, "first"), (1_000, None), (500, None)]
    store.fails_at = 2
    with pytest.raises(StoreError, match="is away\nthe first 1000 of 2500 entities have been changed"):
        changing.make(store, loaded, wanted, dry_run=False)
    store.asked.clear()
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    changing.make(store, loaded, wanted, dry_run=True)
    assert terminal.getvalue().splitlines() == [f"{done} of 2500 entities" for done in (1000, 2000, 2500)]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Batched(QuotaStore):
    """Takes everything, and remembers how much at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, str | None]] = []
        self.fails_at = 0

    def changed(self) -> bool:
        return False

    def _load(self) -> Loaded:
        return Loaded(Policy(), "", "memory")

    def write(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        self.asked.append((len(wanted), alteration.version))
        self.fails_at -= 1
        if self.fails_at == 0:
            raise StoreError("is away")
        return dict.fromkeys(wanted, Outcome())
