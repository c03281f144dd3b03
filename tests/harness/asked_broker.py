"""A stand-in for a broker without a socket, for code that asks through a connection or a cluster."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from config.units import Address
from protocol.requests import Request
from tests.protocol.encode import encode_frame

Fields = Mapping[str, Any]


class AskedBroker:
    """``answers``: the fields of responses, by api key. All wait for ``go_on``; an ``error`` is raised instead."""

    def __init__(self, answers: Mapping[int, Callable[[], Fields]]) -> None:
        self.answers = answers
        self.asked: list[tuple[Address | None, Request]] = []
        """Each request, and the address that it was for."""
        self.error: Exception | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._at: Address | None = None

    async def ask(self, question: Any, at: Address | None = None) -> Any:
        """Answer a request, as a connection does; or let a function ask, as a cluster does."""
        if not isinstance(question, Request):
            self._at = at
            return await question(self)
        self.asked.append((self._at, question))
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return encode_frame(question.spec, self.answers[question.api_key]())
