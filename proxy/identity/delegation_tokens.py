"""Looks up the owners of delegation tokens (KIP-48): only a token's id is on the wire, so a broker is asked.

The broker authenticates a token before its owner is looked up here, so the answer does not grant access: it only
selects the quotas that apply. Until it is known, and if there is none, the client has a user per token
(``principal.token_holder``).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog

from protocol.answers import Token, read_tokens
from protocol.requests import WHICH_TOKENS
from proxy.brokers.connection import BrokerClient, BrokerConnection
from proxy.runtime.clock import monotonic_s
from proxy.runtime.faults import contained
from proxy.runtime.tasks import attempt, spawn

log = structlog.get_logger("sluice.identity")

MAX_TOKENS: Final = 10_000
ASK_EVERY_S: Final = 5.0
ATTEMPTS: Final = 3
"""Attempts per connection's token: a new token takes a moment to reach all brokers."""

_REASONS: Final = {
    61: "the brokers have no delegation tokens (delegation.token.secret.key)",
    64: "brokers answer this on SASL or mTLS listeners alone, and not to a login by token",
    65: "the proxy's user may not: grant it DESCRIBE on the delegation tokens, or DESCRIBE_TOKENS on their owners",
}


class _Waiting(NamedTuple):
    token_id: str
    then: Callable[[str], None]
    attempts_left: int


class TokenOwners:
    """Owners of the tokens that the proxy's own user may describe; the brokers are asked once in ``ASK_EVERY_S``."""

    def __init__(self, cluster: BrokerClient, *, ask_every_s: float = ASK_EVERY_S) -> None:
        self._cluster = cluster
        self._ask_every_s = ask_every_s
        self._known: dict[str, str] = {}
        """Token id → owner, replaced by each answer, so expired tokens disappear."""
        self._waiting: list[_Waiting] = []
        self._asking: asyncio.Task[None] | None = None
        self._asked_at_s = -ask_every_s
        self.error: str | None = None
        """Why the last question failed; None if it succeeded."""
        self.failures = 0

    def owner(self, token_id: str, then: Callable[[str], None]) -> str | None:
        """Return a token's owner; if unknown, None, and ``then`` is called on the loop once a broker has named him.

        To be called after the broker has accepted the token: ids are never reused, so an owner stays valid.
        """
        known = self._known.get(token_id)
        if known is not None:
            return known
        self._waiting.append(_Waiting(token_id, then, ATTEMPTS))
        if self._asking is None:
            self._asking = spawn(self._ask(), "ask for delegation tokens")
        return None

    async def _ask(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(max(0.0, self._asked_at_s + self._ask_every_s - monotonic_s()))
                waiting, self._waiting = self._waiting, []
                await attempt("ask for delegation tokens", partial(self._answer, waiting))
                self._asked_at_s = monotonic_s()
        finally:
            self._asking = None

    async def _answer(self, waiting: list[_Waiting]) -> None:
        """Ask for the tokens that may be described, and tell owners; a failure is logged once."""
        try:
            error_code, tokens = await self._cluster.ask(_which_tokens)
            error = _REASONS.get(error_code, f"error {error_code}") if error_code else None
        except OSError as unreachable:
            error = str(unreachable)
        if error is None:
            # Tokens that connections wait for are kept in any case, and as many others as fit.
            wanted = {each.token_id for each in waiting}
            users = [token for token in tokens if token.owner_type == "User"]
            users.sort(key=lambda token: token.token_id not in wanted)
            self._known = {token.token_id: token.owner for token in users[:MAX_TOKENS]}
        else:
            self.failures += 1
            if error != self.error:
                log.error("owners of delegation tokens unknown: their quotas are not applied", error=error)
        self.error = error
        for token_id, then, attempts_left in waiting:
            owner = self._known.get(token_id)
            if owner is not None:
                contained("tell the owner of a token", then, owner)
            elif attempts_left > 1:
                self._waiting.append(_Waiting(token_id, then, attempts_left - 1))


async def _which_tokens(connection: BrokerConnection) -> tuple[int, list[Token]]:
    return read_tokens(await connection.ask(WHICH_TOKENS))
