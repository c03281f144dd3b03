"""Describe and AlterClientQuotas as the proxy answers them: who may, what Kafka says, what becomes of the store."""

import asyncio
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Altering,
    Component,
    DescribedAll,
    Describing,
    Named,
    Op,
    QuotaEntry,
    Result,
    alter_request,
    describe_request,
    read_altered,
    read_described,
)
from protocol.errors import Cause, ProtocolError
from protocol.fields import Fields
from protocol.requests import Request
from protocol.table import SPECS, key_version
from proxy.control.quota_admin import MOST_ELEMENTS_OF_OTHERS, MOST_WAITING, QuotaAdmin
from proxy.control.quotas import QuotasInForce
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.names import counted_as
from quotas.policy import Policy, PolicyChange
from quotas.stores.alteration import Alteration, Limits, Outcome
from quotas.stores.base import ChangedMeanwhileError
from quotas.stores.file_store import FileStore
from tests.harness.polling import until

pytestmark = pytest.mark.asyncio

QUOTAS = """\
# of the team
quotas:
  - {entity: {user: alice}, producer_byte_rate: 1MiB, request_percentage: 12.5}   # as agreed
  - {entity: {user: alice, client-id: {default: true}}, consumer_byte_rate: 5MiB}
  - {entity: {ip: 10.0.0.1}, connection_creation_rate: 5}
  - {entity: {client-id: {prefix: team-}}, producer_byte_rate: 1MiB}
"""
ALICE = (("user", "alice"),)
IP_BESIDE = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
    "component."
)
RATE = "producer_byte_rate"
NOT_AUTHORIZED = (31, "Cluster authorization failed.")
AGAIN, NEVER, INVALID = 7, -1, 42


class Store(FileStore):
    """A quota file that somebody else changes at the worst moment, or whose disk is slow."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.changed_meanwhile = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def write(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        if self.changed_meanwhile:
            self.changed_meanwhile -= 1
            raise ChangedMeanwhileError("quotas.yaml: has been changed meanwhile")
        self.go_on.wait()
        return super().write(wanted, alteration)


class Stage:
    """The QuotaAdmin of a quota file; ``admin`` is one."""

    def __init__(self, folder: Path, *, admins: Sequence[str] = ("admin",), enabled: bool = True) -> None:
        self.path = folder / "quotas.yaml"
        self.path.write_text(QUOTAS)
        self.store = Store(self.path)
        self.quotas = QuotasInForce(self.store, self._apply, enabled=enabled)
        self.managing = QuotaAdmin(self.quotas, admins)
        self.applied: list[Policy] = []

    async def _apply(self, policy: Policy) -> PolicyChange:
        self.applied.append(policy)
        return PolicyChange(0, 0, 0)

    async def loaded(self) -> "Stage":
        assert await self.quotas.load()
        return self

    async def ask(self, request: Request, user: str = "admin") -> bytes:
        return await self.managing.answer(request.frame("tool", 7), user, "tool", "10.0.0.9:5")

    async def describe(self, *components: Component, strict: bool = False, user: str = "admin") -> DescribedAll:
        return read_described(await self.ask(describe_request(Describing(components, strict)), user))

    async def alter(self, *entries: QuotaEntry, validate_only: bool = False, user: str = "admin") -> Sequence[Result]:
        return read_altered(await self.ask(alter_request(Altering(entries, validate_only)), user))

    def counted(self) -> dict[str, int]:
        return {outcome: number for outcome, number in self.quotas.changes.counts.items() if number}


def entry(limit: float | None, *named: Named, key: str = RATE) -> QuotaEntry:
    return QuotaEntry(named or ALICE, (Op(key, limit),))


# -------------------------------------------------------------------------------------------------------- describe


@pytest.mark.parametrize("enabled", [True, False])
async def test_describe_returns_configured_quotas_in_every_mode(tmp_path: Path, enabled: bool) -> None:
    stage = await Stage(tmp_path, enabled=enabled).loaded()
    everything = await stage.describe()
    assert {each.entity: dict(each.limits) for each in everything.entries} == {
        ALICE: {RATE: 1048576.0, "request_percentage": 12.5},
        (("client-id", None), ("user", "alice")): {"consumer_byte_rate": 5242880.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
    }
    (strict,) = (await stage.describe(Component("user", 0, "alice"), strict=True)).entries
    assert strict.entity == ALICE
    assert (await stage.describe(Component("user", 1))).entries == ()
    assert len((await stage.describe(Component("user", 2))).entries) == 2


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 2, None)], INVALID, "Invalid empty entity type."),
        (
            [("user", 2, None), ("user", 1, None)],
            INVALID,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("topic", 2, None)], 35, "Unsupported entity type topic"),
        ([("user", 0, None)], INVALID, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], INVALID, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], INVALID, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 9, None)], INVALID, "Unknown match type 9"),
        (
            [("ip", 2, None), ("user", 2, None)],
            INVALID,
            IP_BESIDE,
        ),
    ],
)
async def test_filters_are_refused_in_the_words_of_a_broker(
    tmp_path: Path, components: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    stage = await Stage(tmp_path).loaded()
    answer = await stage.describe(*(Component(*each) for each in components))
    assert answer == DescribedAll((), code, message)


# ----------------------------------------------------------------------------------------------------------- alter


async def test_an_alter_is_in_force_kept_in_the_file_as_its_author_wrote_it_and_told(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    with capture_logs() as logs:
        assert await stage.alter(
            entry(2097152.0), entry(None, *ALICE, ("client-id", None), key="consumer_byte_rate")
        ) == (
            Result(ALICE),
            Result((("client-id", None), *ALICE)),
        )
    after = QUOTAS.replace("1MiB, request", "2097152, request")
    assert stage.path.read_text() == "".join(line for line in after.splitlines(True) if "5MiB" not in line)
    assert stage.applied[-1] == stage.quotas.policy
    assert stage.quotas.policy.limits[Entity("alice")][QuotaKind.PRODUCER_BYTE_RATE] == 2097152
    told = [line for line in logs if line["event"] == "quota changed"]
    assert [(line["who"], line["peer"], line["client_id"], line["store"]) for line in told] == [
        ("admin", "10.0.0.9:5", "tool", "file")
    ] * 2
    assert [(line["quota"], line["kind"], line["old"], line["new"]) for line in told] == [
        ("user=alice", RATE, 1048576.0, 2097152.0),
        ("user=alice, client-id=<default>", "consumer_byte_rate", 5242880.0, None),
    ]
    assert stage.counted() == {"made": 2}
    latest, first = stage.quotas.changes.last()
    assert (first["old"], first["new"], latest["new"]) == (1048576.0, 2097152.0, None)
    assert await stage.alter(entry(2097152.0)) == (Result(ALICE),)
    assert stage.counted() == {"made": 2, "unchanged": 1}


@pytest.mark.parametrize(
    ("named", "ops", "message"),
    [
        ((), [(RATE, 1.0)], "Invalid empty client quota entity"),
        ((("topic", "t"),), [(RATE, 1.0)], "Unhandled client quota entity type: topic"),
        ((("user", ""),), [(RATE, 1.0)], "Empty user not supported"),
        ((("client-id", ""),), [(RATE, 1.0)], "Empty client-id not supported"),
        (
            (("user", "u"), ("ip", "1.2.3.4")),
            [(RATE, 1.0)],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (ALICE, [("nonsense", 1.0)], "Invalid configuration key nonsense"),
        ((("ip", "1.2.3.4"),), [(RATE, 1.0)], f"Invalid configuration key {RATE}"),
        (ALICE, [(RATE, 0.0)], f"Quota {RATE} must be greater than 0"),
        (ALICE, [(RATE, -1.5)], f"Quota {RATE} must be greater than 0"),
        (ALICE, [(RATE, -math.inf)], f"Quota {RATE} must be greater than 0"),
        (ALICE, [("request_percentage", -0.5)], "Quota request_percentage must be greater than 0"),
        (ALICE, [(RATE, 1.5)], f"{RATE} cannot be a fractional value."),
        (ALICE, [(RATE, 1e19)], f"Proposed value for {RATE} is too large for a LONG."),
        (ALICE, [(RATE, math.inf)], f"Proposed value for {RATE} is too large for a LONG."),
        (
            (("ip", "1.2.3.4"),),
            [("connection_creation_rate", 3e9)],
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            (("user", None), ("client-id", "c")),
            [(RATE, 1.0), (RATE, None)],
            "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=null})",
        ),
        (ALICE, [("request_percentage", math.nan)], "request_percentage: is not a number; write a number above 0"),
        ((("ip", "localhost"),), [], "ip: 'localhost' is not an IP address; host names are not resolved"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_invalid_alter_is_refused_with_message_of_controller(
    tmp_path: Path, named: tuple[Named, ...], ops: list[tuple[str, float | None]], message: str, validate_only: bool
) -> None:
    stage = await Stage(tmp_path).loaded()
    wrong = QuotaEntry(named, tuple(Op(*op) for op in ops))
    good = entry(2097152.0, ("user", "bob"))
    results = await stage.alter(wrong, good, validate_only=validate_only)
    assert {(frozenset(each.entity), each.error_code, each.message) for each in results} == {
        (frozenset(named), INVALID, message),
        (frozenset({("user", "bob")}), 0, None),
    }
    assert stage.counted() == ({} if validate_only else {"refused": 1, "made": 1})
    assert (stage.path.read_text() == QUOTAS) is validate_only
    assert (stage.quotas.changes.last() == []) is validate_only


async def test_an_entity_has_one_result_and_the_first_of_two_changes_was_made(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    said = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert await stage.alter(entry(2097152.0), entry(3145728.0)) == (Result(ALICE, INVALID, said),)
    assert "2097152" in stage.path.read_text()
    twice = (("user", "bob"), ("user", "carol"))
    assert await stage.alter(entry(1048576.0, *twice)) == (Result((("user", "carol"),)),)
    assert Entity("carol") in stage.quotas.policy.limits


# --------------------------------------------------------------------------------------------------------- who may


@pytest.mark.parametrize("admins", [(), ("admin",), ("User:mallory", "Mallory")])
@pytest.mark.parametrize("user", ["mallory", "ANONYMOUS", ""])
async def test_quota_requests_without_admin_are_refused(tmp_path: Path, admins: Sequence[str], user: str) -> None:
    stage = await Stage(tmp_path, admins=admins).loaded()
    assert await stage.describe(user=user) == DescribedAll((), *NOT_AUTHORIZED)
    for validate_only in (False, True):
        answer = await stage.alter(entry(1.0), entry(2.0, ("ip", None)), validate_only=validate_only, user=user)
        assert answer == (Result(ALICE, *NOT_AUTHORIZED), Result((("ip", None),), *NOT_AUTHORIZED))
    assert stage.path.read_text() == QUOTAS
    assert stage.counted() == {"unauthorized": 4}


async def test_long_alter_without_admin_fails_as_frame_too_large(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    many = [entry(1.0, ("user", f"user-{number}")) for number in range(MOST_ELEMENTS_OF_OTHERS // 3 + 1)]
    with pytest.raises(ProtocolError, match=r"quotas\.admins") as caught:
        await stage.alter(*many, user="mallory")
    assert caught.value.cause is Cause.FRAME_TOO_LARGE
    assert len(await stage.alter(*many)) == len(many)


async def test_alter_without_admin_parses_few_entities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight KiB have room for 2,700 of the smallest: 14 ms of everybody's time, as often as a stranger likes."""
    read = 0
    count = Fields.count

    def counted(self: Fields) -> int:
        nonlocal read
        read += 1
        return count(self)

    stage = await Stage(tmp_path).loaded()
    monkeypatch.setattr(Fields, "count", counted)
    for number in (2700, MOST_ELEMENTS_OF_OTHERS + 1):
        with pytest.raises(ProtocolError) as caught:
            await stage.alter(*[QuotaEntry((), ())] * number, user="mallory")
        assert caught.value.cause is Cause.FRAME_TOO_LARGE
    assert read < 3 * MOST_ELEMENTS_OF_OTHERS


async def test_admins_may_be_those_who_do_not_log_in_and_have_long_names(tmp_path: Path) -> None:
    name = "n" * 1000
    stage = await Stage(tmp_path, admins=("ANONYMOUS", name)).loaded()
    assert (await stage.describe(user="ANONYMOUS")).error_code == 0
    assert (await stage.describe(user=counted_as(name))).error_code == 0


# ----------------------------------------------------------------------------------------- stores that are not well


async def test_quotas_that_are_not_known_yet_are_not_called_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert (await stage.describe()).error_code == AGAIN
    await stage.loaded()
    assert (await stage.describe()).error_code == 0


async def test_a_broken_file_is_not_changed_and_what_was_loaded_is_described(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    stage.path.write_text("quotas: 5\n")
    (result,) = await stage.alter(entry(1.0))
    assert result.error_code == AGAIN
    assert str(result.message).startswith(f"{stage.path}:1:9: quotas: must be a list")
    assert len((await stage.describe()).entries) == 3
    assert stage.counted() == {"failed": 1}


async def test_a_file_that_may_not_be_written_says_so(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    stage.path.rename(tmp_path / "mounted.yaml")
    stage.path.symlink_to("mounted.yaml")
    (result,) = await stage.alter(entry(1048576.0 * 3))
    assert (result.error_code, "symbolic link" in str(result.message)) == (NEVER, True)
    assert len(str(result.message)) < 1100


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 0), (3, AGAIN)])
async def test_a_file_that_changes_meanwhile_is_read_again(tmp_path: Path, times: int, code: int) -> None:
    stage = await Stage(tmp_path).loaded()
    stage.store.changed_meanwhile = times
    (result,) = await stage.alter(entry(2097152.0))
    assert result.error_code == code


# ------------------------------------------------------------------------------------------------- many, and the end


async def test_alters_beyond_waiting_limit_are_refused_and_describe_answers(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    stage.store.go_on.clear()
    alters = [entry(1048576.0 + number, ("user", f"u{number}")) for number in range(MOST_WAITING)]
    waiting = [asyncio.ensure_future(stage.alter(each)) for each in alters]
    await until(lambda: stage.managing._waiting, equals=MOST_WAITING)
    (refused,) = await stage.alter(entry(1.0))
    assert (refused.error_code, "try again" in str(refused.message)) == (AGAIN, True)
    assert len((await stage.describe()).entries) == 3
    assert (await stage.alter(entry(1.0), user="mallory"))[0].error_code == 31
    stage.store.go_on.set()
    assert [result.error_code for (result,) in await asyncio.gather(*waiting)] == [0] * MOST_WAITING
    assert len((await stage.describe()).entries) == 3 + MOST_WAITING
    assert stage.managing._waiting == 0


async def test_stopping_quota_admin_finishes_begun_alter_and_refuses_waiting(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    stage.store.go_on.clear()
    begun = asyncio.ensure_future(stage.alter(entry(2097152.0)))
    await until(lambda: stage.managing._waiting, equals=1)
    behind = asyncio.ensure_future(stage.alter(entry(3145728.0)))
    await until(lambda: stage.managing._waiting, equals=2)
    stage.managing.stop()
    stage.store.go_on.set()
    assert await begun == (Result(ALICE),)
    (refused,) = await behind
    assert (refused.error_code, "stopping" in str(refused.message)) == (AGAIN, True)
    assert "2097152" in stage.path.read_text()


async def test_cancelled_waiting_alter_frees_its_place(tmp_path: Path) -> None:
    stage = await Stage(tmp_path).loaded()
    stage.store.go_on.clear()
    first, second = (asyncio.ensure_future(stage.alter(entry(2097152.0 + number))) for number in range(2))
    await until(lambda: stage.managing._waiting, equals=2)
    second.cancel()
    await asyncio.wait([second])
    assert stage.managing._waiting == 1
    stage.store.go_on.set()
    assert await first == (Result(ALICE),)


@pytest.mark.parametrize("key", [DESCRIBE, ALTER])
@pytest.mark.parametrize("version", [0, 1])
async def test_malformed_quota_requests_are_protocol_errors(tmp_path: Path, key: int, version: int) -> None:
    stage = await Stage(tmp_path).loaded()
    assert key_version(key, version) in SPECS
    whole = Request(key, version, b"\0" * version + b"\xff\xff\xff\x7f").frame("tool", 1)
    for user in ("admin", "mallory")[: 1 if key == DESCRIBE else 2]:
        with pytest.raises(ProtocolError):
            await stage.managing.answer(whole, user, "tool", "10.0.0.9:5")
