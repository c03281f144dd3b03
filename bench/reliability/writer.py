"""Producers of Python's client libraries.

`python -m bench.reliability.writer FAMILY BOOTSTRAP FOLDER RATE MODE:TOPIC:NUMBER…`: a thread a mode sends RATE
records a second until `FOLDER/stop` exists, and writes to `FOLDER/FAMILY-MODE`:

    acked PRODUCER SEQUENCE PARTITION OFFSET MS   acknowledged at this monotonic time, and its transaction is committed
    aborted PRODUCER TRANSACTION                  the client was told that the transaction is aborted
    failed PRODUCER SEQUENCE REASON               the client library gave up; stored or not

A producer that fails for good is opened again under the next PRODUCER number. With LEDGER_CA, a PEM file, it uses TLS.
Writer.java does the same.
"""

import asyncio
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from bench.reliability.ledger import TRANSACTION_RECORDS, Mode, encode

CA: Final = "LEDGER_CA"
PARTITIONS: Final = 3
MOST_OUTSTANDING: Final = 2000
ABORTED_EACH: Final = 3
"""Each third transaction is aborted."""
END_S: Final = 150.0
DELIVERY_S: Final = 120
TRANSACTION_S: Final = 60
LINGER_MS: Final = 20
Done = Callable[[int, str], object]
"""Takes the offset, and an error or nothing."""


class Producer(Protocol):
    """Calls raise when the producer cannot go on."""

    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None: ...
    def poll(self) -> None: ...
    def flush(self) -> None: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Librdkafka:
    def __init__(self, bootstrap: str, name: str, mode: Mode) -> None:
        from confluent_kafka import Producer as Client

        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "linger.ms": LINGER_MS,
            "reconnect.backoff.max.ms": 1000,
            "message.timeout.ms": (TRANSACTION_S if mode is Mode.TRANSACTIONAL else DELIVERY_S) * 1000,
            "acks": "1" if mode is Mode.ONE else "all",
        }
        if mode is Mode.TRANSACTIONAL:
            settings |= {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_S * 1000}
        elif mode is Mode.IDEMPOTENT:
            settings["enable.idempotence"] = True
        else:
            settings["max.in.flight"] = 1
        if CA in os.environ:
            settings |= {"security.protocol": "SSL", "ssl.ca.location": os.environ[CA]}
        self._client: Any = Client(settings)
        self.begin, self.abort = self._client.begin_transaction, self._client.abort_transaction
        self.commit = self._client.commit_transaction
        if mode is Mode.TRANSACTIONAL:
            self._client.init_transactions(END_S)

    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None:
        def told(error: Any, message: Any) -> None:
            done(message.offset(), error.name() if error else "")

        self._client.produce(topic, value, partition=partition, on_delivery=told)

    def poll(self) -> None:
        self._client.poll(0)

    def flush(self) -> None:
        self._client.flush(END_S)

    def close(self) -> None:
        self._client.purge()
        self._client.flush(1.0)


def _python_settings(bootstrap: str, name: str, mode: Mode) -> dict[str, Any]:
    """The settings that kafka-python and aiokafka have in common."""
    security: dict[str, Any] = {}
    if CA in os.environ:
        security = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cafile=os.environ[CA])}
    transactional = {"transactional_id": name, "transaction_timeout_ms": TRANSACTION_S * 1000}
    return {
        "bootstrap_servers": bootstrap,
        "client_id": name,
        "linger_ms": LINGER_MS,
        "acks": 1 if mode is Mode.ONE else "all",
        "enable_idempotence": mode in {Mode.IDEMPOTENT, Mode.TRANSACTIONAL},
        **(transactional if mode is Mode.TRANSACTIONAL else {}),
        **security,
    }


class KafkaPython:
    def __init__(self, bootstrap: str, name: str, mode: Mode) -> None:
        from kafka import KafkaProducer

        settings = _python_settings(bootstrap, name, mode) | {"reconnect_backoff_max_ms": 1000}
        if mode in {Mode.ALL, Mode.ONE}:
            settings["max_in_flight_requests_per_connection"] = 1
        self._client: Any = KafkaProducer(**settings)
        self.begin = self._client.begin_transaction
        self.commit = partial(_bounded, self._client.commit_transaction)
        self.abort = partial(_bounded, self._client.abort_transaction)
        if mode is Mode.TRANSACTIONAL:
            _bounded(self._client.init_transactions)

    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None:
        sent = self._client.send(topic, value, partition=partition)
        sent.add_callback(lambda metadata: done(metadata.offset, ""))
        sent.add_errback(lambda error: done(-1, type(error).__name__))

    def poll(self) -> None:
        """A thread of the library does."""

    def flush(self) -> None:
        self._client.flush(END_S)

    def close(self) -> None:
        self._client.close(timeout=0)


def _bounded(call: Callable[[], object]) -> None:
    """Raise TimeoutError if it does not return: kafka-python 3.0.12 may wait for the end of a transaction for good."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001  it is raised by ``result``
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    future.result(TRANSACTION_S)


class Aiokafka:
    """Its loop is in a thread of its own; it has one request in flight per broker by itself."""

    def __init__(self, bootstrap: str, name: str, mode: Mode) -> None:
        from aiokafka import AIOKafkaProducer

        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._client: Any = None

        async def start() -> None:
            self._client = AIOKafkaProducer(**_python_settings(bootstrap, name, mode), request_timeout_ms=60_000)
            await self._client.start()

        self._run(start())

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(END_S)

    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None:
        def told(sent: Any) -> None:
            error = sent.exception()
            done(*((-1, type(error).__name__) if error else (sent.result().offset, "")))

        async def send() -> None:
            sent = await self._client.send(topic, value, partition=partition)
            sent.add_done_callback(told)

        self._run(send())  # one after the other: those that wait for room are not served in their order

    def poll(self) -> None:
        """The loop does."""

    def flush(self) -> None:
        self._run(self._client.flush())

    def begin(self) -> None:
        self._run(self._client.begin_transaction())

    def commit(self) -> None:
        self._run(self._client.commit_transaction())

    def abort(self) -> None:
        self._run(self._client.abort_transaction())

    def close(self) -> None:
        self._run(asyncio.wait_for(self._client.stop(), 5.0))


FAMILIES: Final[dict[str, Callable[[str, str, Mode], Producer]]] = {
    "librdkafka": Librdkafka,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


class Writer:
    def __init__(self, open_producer: Callable[[], Producer], stop: Path, output: TextIO, rate: float) -> None:
        self._open = open_producer
        self._stop = stop
        self._output = output
        self._rate = rate
        self._lock = threading.Lock()
        self._outstanding = 0
        self._failed = False
        self._start_s = time.monotonic()
        self._sent = 0

    def run(self, topic: str, number: int, mode: Mode) -> None:
        run = self._transactions if mode is Mode.TRANSACTIONAL else self._records
        for producer_number in count(number):
            if self._stop.exists():
                return
            try:
                producer = self._open()
            except Exception as error:  # noqa: BLE001  it may not reach a broker now
                self._write(f"failed {producer_number} -1 {type(error).__name__}")
                time.sleep(0.5)
                continue
            self._outstanding = 0
            try:
                run(producer, topic, producer_number)
            except Exception as error:  # noqa: BLE001  a new one goes on
                self._write(f"failed {producer_number} -1 {type(error).__name__}")
                with suppress(Exception):
                    producer.close()
            else:
                return

    def _records(self, producer: Producer, topic: str, number: int) -> None:
        for sequence in count():
            if not self._wait(producer):
                break
            self._send(producer, topic, number, sequence, self._write)
        self._settle(producer)

    def _transactions(self, producer: Producer, topic: str, number: int) -> None:
        """Where the end of a transaction is unknown, the next producer with its id ends it: nothing is written down."""
        for transaction in count():
            if self._stop.exists():
                return
            acked: list[str] = []
            self._failed = False
            producer.begin()
            first = transaction * TRANSACTION_RECORDS
            for sequence in range(first, first + TRANSACTION_RECORDS):
                self._wait(producer)
                self._send(producer, topic, number, sequence, acked.append)
            self._settle(producer)
            if self._failed or transaction % ABORTED_EACH == ABORTED_EACH - 1:
                producer.abort()
                self._write(f"aborted {number} {transaction}")
            else:
                producer.commit()
                for line in acked:
                    self._write(line)

    def _wait(self, producer: Producer) -> bool:
        """Until the next record is due; False when it is time to end."""
        while not self._stop.exists():
            producer.poll()
            due_s = self._start_s + self._sent / self._rate
            if self._outstanding < MOST_OUTSTANDING and time.monotonic() >= due_s:
                self._sent += 1
                return True
            if self._outstanding >= MOST_OUTSTANDING:  # what could not be sent meanwhile is not made up for
                self._start_s, self._sent = time.monotonic(), 0
            time.sleep(0.005)
        return False

    def _settle(self, producer: Producer) -> None:
        """Until each record is acknowledged or given up: callbacks may come behind the flush."""
        producer.flush()
        end_s = time.monotonic() + END_S
        while self._outstanding > 0 and time.monotonic() < end_s:
            producer.poll()
            time.sleep(0.001)

    def _send(self, producer: Producer, topic: str, number: int, sequence: int, acked: Callable[[str], object]) -> None:
        partition = sequence % PARTITIONS

        def done(offset: int, error: str) -> None:
            with self._lock:
                self._outstanding -= 1
            if error:
                self._failed = True
                self._write(f"failed {number} {sequence} {error}")
            else:
                acked(f"acked {number} {sequence} {partition} {offset} {time.monotonic_ns() // 1_000_000}")

        with self._lock:
            self._outstanding += 1
        try:
            producer.send(topic, partition, encode(number, sequence, partition), done)
        except Exception:
            with self._lock:
                self._outstanding -= 1
            raise

    def _write(self, line: str) -> None:
        with self._lock:
            self._output.write(line + "\n")


def write(family: str, bootstrap: str, folder: str, rate: str, share: str) -> None:
    word, topic, number = share.split(":")
    mode = Mode(word)
    with Path(folder, f"{family}-{mode}").open("w", encoding="utf-8", buffering=1) as output:
        writer = Writer(
            lambda: FAMILIES[family](bootstrap, f"{family}-{mode}", mode), Path(folder, "stop"), output, float(rate)
        )
        writer.run(topic, int(number), mode)


def main(family: str, bootstrap: str, folder: str, rate: str, *shares: str) -> None:
    threads = [threading.Thread(target=write, args=(family, bootstrap, folder, rate, share)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
