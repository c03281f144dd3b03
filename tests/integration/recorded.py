"""What usage records say of some counters: read from their topic, without Spark."""

import asyncio
import json
from collections import Counter as Sums
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from aiokafka import AIOKafkaConsumer

from analysis.kernel.arrays import Floats

Document = dict[str, Any]


class Counter(NamedTuple):
    """One client at one broker, and what of it is counted: ``produce`` or ``fetch``."""

    client_id: str
    broker: int
    word: str


@dataclass(frozen=True, slots=True)
class Recording:
    """Of some counters, in their order, each [second, counter]."""

    sent_bytes: Floats
    requests: Floats
    muted_s: Floats


def documents(bootstrap: str, topic: str) -> list[Document]:
    """Return everything that is in the topic now, each partition in the order of its records."""

    async def read() -> list[Document]:
        found: list[Document] = []
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            ends = await consumer.end_offsets(consumer.assignment())
            for partition in ends:
                await consumer.seek_to_beginning(partition)
            while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                batches = await consumer.getmany(timeout_ms=1000)
                found += [json.loads(record.value) for records in batches.values() for record in records]
        return found

    return asyncio.run(read())


def rows(found: Iterable[Document]) -> Iterable[dict[str, Any]]:
    """Return the rows of documents, each with the time of its document."""
    for document in found:
        columns = document["rows"]
        for values in zip(*columns.values(), strict=True):
            yield {"time_ms": document["time_ms"], **dict(zip(columns, values, strict=True))}


def totals(found: Iterable[Document], client_id: str) -> Sums[str]:
    """Return the sums over all rows of a client."""
    sums: Sums[str] = Sums()
    for row in rows(found):
        if row["client_id"] == client_id:
            sums.update({name: value for name, value in row.items() if isinstance(value, int) and name != "time_ms"})
    return sums


def recording(found: Iterable[Document], counters: Sequence[Counter], begin_s: float, seconds: int) -> Recording:
    """Take the records of ``seconds`` from ``begin_s`` (Unix time) on, of intervals of one second."""
    number = {counter: number for number, counter in enumerate(counters)}
    sent, requests, muted_ms = np.zeros((3, seconds, len(counters)))
    for row in rows(found):
        second = round(row["time_ms"] / 1000 - begin_s)
        for word in ("produce", "fetch"):
            at = number.get(Counter(row["client_id"], row["broker"], word))
            if at is None or not 0 <= second < seconds:
                continue
            sent[second, at] += row[f"{word}_bytes"]
            requests[second, at] += row[f"{word}_requests"]
            muted_ms[second, at] += row[f"{word}_muted_ms"]
    return Recording(sent, requests, muted_ms / 1000)
