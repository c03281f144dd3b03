"""Asks the other instances for their part of a list (``?all=1``), at their admin ports, by the map of owners."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import aiohttp
import orjson

from config.units import Address
from proxy.brokers.failures import describe

ANSWER_S: Final = 2.0
_MOST_BYTES: Final = 16 * 1024 * 1024

Others = Callable[[], Mapping[str, tuple[str, int] | None]]
"""Returns the other instances and their admin ports, None where that is not known."""


class Heard(NamedTuple):
    """The part of one instance."""

    instance: str
    error: str | None
    total: int = 0
    items: list[dict[str, Any]] = []  # noqa: RUF012  read only


async def ask_all(others: Others, resource: str, parameters: Mapping[str, str]) -> list[Heard]:
    """Return what each other instance answers within ANSWER_S; they are all asked at once, and ask nobody in turn."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout, headers={"Host": "localhost"}) as session:  # a name each accepts
        asked = [_ask(session, name, at, resource, parameters) for name, at in sorted(others().items())]
        return await asyncio.gather(*asked)


async def _ask(
    session: aiohttp.ClientSession,
    instance: str,
    at: tuple[str, int] | None,
    resource: str,
    parameters: Mapping[str, str],
) -> Heard:
    if at is None:
        return Heard(instance, "its admin port is not known, or not reachable from here (admin.bind)")
    try:
        async with session.get(f"http://{Address(*at)}/api/v1/{resource}", params=dict(parameters)) as answer:
            if answer.status != 200:
                return Heard(instance, f"answers with status {answer.status}")
            if (answer.content_length or 0) > _MOST_BYTES:
                return Heard(instance, f"answers with more than {_MOST_BYTES} bytes")
            data = await asyncio.to_thread(orjson.loads, await answer.read())
        items = data["items"]
        for item in items:
            item["instance"] = instance
        return Heard(instance, None, int(data["total"]), items)
    except TimeoutError:
        return Heard(instance, f"does not answer within {ANSWER_S:g} s")
    except (aiohttp.ClientError, OSError) as error:
        return Heard(instance, describe(error))
    except (ValueError, KeyError, TypeError):
        return Heard(instance, "its answer is not understood: is it of another version?")
