import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.requests import WHICH_TOKENS
from proxy.identity import delegation_tokens
from proxy.identity.delegation_tokens import ATTEMPTS, TokenOwners
from proxy.runtime import faults
from tests.harness.asked_broker import AskedBroker
from tests.harness.polling import until

pytestmark = pytest.mark.asyncio


class Holders:
    """Who was told to be the owner, in order."""

    def __init__(self) -> None:
        self.cluster = AskedBroker({WHICH_TOKENS.api_key: self._tokens})
        self.named: dict[str, str] = {}
        """Token id → owner, as the cluster says."""
        self.owner_type = "User"
        self.error_code = 0
        self.owners = TokenOwners(self.cluster, ask_every_s=0)
        self.told: list[tuple[str, str]] = []

    def owner(self, token_id: str) -> str | None:
        return self.owners.owner(token_id, lambda owner: self.told.append((token_id, owner)))

    def _tokens(self) -> dict[str, Any]:
        tokens = [
            {"principal_type": self.owner_type, "principal_name": owner, "token_id": token_id, "hmac": b"canary"}
            for token_id, owner in self.named.items()
        ]
        return {"error_code": self.error_code, "tokens": tokens}

    async def answered(self) -> None:
        await until(lambda: self.owners._asking is None)


async def test_an_owner_is_told_when_the_cluster_has_said_who_and_known_from_then_on() -> None:
    holders = Holders()
    holders.named = {"id-1": "alice", "id-2": "bob"}
    assert holders.owner("id-1") is None
    assert holders.told == []
    await holders.answered()
    assert holders.told == [("id-1", "alice")]
    assert (holders.owner("id-1"), holders.owner("id-2")) == ("alice", "bob")
    assert len(holders.cluster.asked) == 1


async def test_delegation_token_lookups_during_a_describe_wait_for_next() -> None:
    holders = Holders()
    holders.cluster.go_on.clear()
    holders.owner("id-1")
    await until(lambda: holders.cluster.asked)
    holders.named = {"id-1": "alice", "id-2": "bob"}
    for _ in range(3):
        assert holders.owner("id-2") is None
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(holders.cluster.asked) == 1
    holders.cluster.go_on.set()
    await holders.answered()
    assert holders.told == [("id-1", "alice"), *[("id-2", "bob")] * 3]
    assert len(holders.cluster.asked) == 2


async def test_delegation_token_lookups_keep_the_configured_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = 100.0, list[float]()

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr("proxy.identity.delegation_tokens.asyncio.sleep", sleep)
    monkeypatch.setattr(delegation_tokens, "monotonic_s", lambda: now_s)
    holders = Holders()
    holders.owners = TokenOwners(holders.cluster, ask_every_s=5.0)
    for token_id in ("id-1", "id-2"):
        holders.owner(token_id)
        task = holders.owners._asking
        assert task is not None
        await task
    assert slept == [0.0, 5.0, 5.0, 5.0, 5.0, 5.0]


async def test_a_token_that_nobody_names_is_asked_for_a_few_times_and_then_left() -> None:
    holders = Holders()
    assert holders.owner("new") is None
    await holders.answered()
    assert (len(holders.cluster.asked), holders.told, holders.owners._waiting) == (ATTEMPTS, [], [])
    holders.named = {"new": "alice"}
    assert holders.owner("new") is None
    await holders.answered()
    assert holders.told == [("new", "alice")]


@pytest.mark.parametrize(
    ("error_code", "down", "said"),
    [
        (61, "", "delegation.token.secret.key"),
        (64, "", "SASL or mTLS listeners alone"),
        (65, "", "DESCRIBE_TOKENS on their owners"),
        (3, "", "error 3"),
        (0, "127.0.0.1:1: no answer in time", "127.0.0.1:1: no answer in time"),
    ],
)
async def test_failed_describe_of_tokens_is_an_error_until_next_success(error_code: int, down: str, said: str) -> None:
    holders = Holders()
    holders.named = {"id-1": "alice"}
    holders.owner("id-1")
    await holders.answered()
    holders.error_code, holders.named = error_code, {}
    holders.cluster.error = ConnectionError(down) if down else None
    with capture_logs() as logs:
        assert holders.owner("id-2") is None
        await holders.answered()
    assert [said in line["error"] for line in logs] == [True], "logged once"
    assert said in (holders.owners.error or "")
    assert (holders.owners.failures, holders.owner("id-1")) == (ATTEMPTS, "alice")
    holders.error_code, holders.cluster.error, holders.named = 0, None, {"id-2": "bob"}
    holders.owner("id-2")
    await holders.answered()
    assert (holders.owners.error, holders.told[-1]) == (None, ("id-2", "bob"))
    assert holders.owners._known == {"id-2": "bob"}, "what has expired is forgotten"


async def test_delegation_token_owner_that_is_no_user_is_ignored() -> None:
    holders = Holders()
    holders.named, holders.owner_type = {"id-1": "alice"}, "Group"
    holders.owner("id-1")
    await holders.answered()
    assert holders.told == []
    assert holders.owners.error is None


async def test_known_token_owners_are_bounded_with_awaited_token_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "MAX_TOKENS", 3)
    holders = Holders()
    holders.named = {f"id-{number}": f"user-{number}" for number in range(10)}
    holders.owner("id-9")
    await holders.answered()
    assert holders.told == [("id-9", "user-9")]
    assert holders.owners._known == {"id-9": "user-9", "id-0": "user-0", "id-1": "user-1"}


async def test_failing_owner_callback_leaves_other_callbacks_told() -> None:
    def fail(owner: str) -> None:
        raise LookupError(owner)

    holders, before = Holders(), faults.counts["tell the owner of a token"]
    holders.named = {"id-1": "alice", "id-2": "bob"}
    holders.owners.owner("id-1", fail)
    holders.owner("id-2")
    await holders.answered()
    assert holders.told == [("id-2", "bob")]
    assert faults.counts["tell the owner of a token"] == before + 1


async def test_fault_in_token_lookup_leaves_next_lookup_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    holders, before = Holders(), faults.counts["ask for delegation tokens"]
    holders.named = {"id-1": "alice"}
    with monkeypatch.context() as patch:
        patch.setattr(TokenOwners, "_answer", None)
        holders.owner("id-1")
        await holders.answered()
    assert faults.counts["ask for delegation tokens"] == before + 1
    holders.owner("id-1")
    await holders.answered()
    assert holders.told == [("id-1", "alice")]
