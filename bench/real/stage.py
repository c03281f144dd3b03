"""The set-up of rows with a real broker: the broker, a recorded client, and the performance tools."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from bench.errors import BenchError
from bench.programs import DIRECT, HAPROXY, RELAY
from bench.real.broker import BULK, SMALL, STORED, RealBroker
from bench.real.recording import Recorded, Recorder
from bench.real.tools import Moved, Tools
from bench.rows import Load

SMALL_RECORD_BYTES: Final = 381
"""With its framing, one record is a request of 512 B."""
PRODUCED_PER_S: Final = 100_000
CONSUMED_PER_S: Final = 250_000
"""Records of RECORD_BYTES per second of a sample, enough to make a tool's start-up cost negligible."""
STORED_BATCH_BYTES: Final = 1 << 16
WARMING_REQUESTS: Final = 30_000

_RECORDER: Final = "recorder"


class Stage:
    """Starts the broker at once; records and stores data on demand. Must be closed."""

    def __init__(self, folder: Path, core: int, names: Sequence[str]) -> None:
        folder.mkdir()
        self._folder = folder
        self._tools = Tools(core, folder)
        self._recorded: Recorded | None = None
        self._stored = 0
        self._groups = count()
        self._broker = RealBroker(folder / "broker", core, (*names, _RECORDER), (HAPROXY, RELAY, _RECORDER))
        self.port = self._broker.port
        self.listener_port = self._broker.listener_port
        self.log_tail = self._broker.log_tail

    def recorded(self) -> Recorded:
        """Return a Java producer's requests up to its first Produce: acks=1, one record, not idempotent (the broker
        would refuse a repetition).
        """
        if self._recorded is None:
            port = self.port(_RECORDER)
            with Recorder(port, self.listener_port(_RECORDER)) as recorder:
                self._tools.produce(
                    port, SMALL, 1, record_bytes=SMALL_RECORD_BYTES, acks="1", enable_idempotence="false"
                )
            self._recorded = Recorded.of(recorder.conversations, self._folder / "frames")
            # Let the broker's JIT compile, on the load's core, before anything is measured.
            self._tools.produce(
                self.port(DIRECT), SMALL, WARMING_REQUESTS, record_bytes=SMALL_RECORD_BYTES, batch_size="0"
            )
        return self._recorded

    def prepare(self, load: Load, seconds: float) -> None:
        """Store the data for a sample of that duration."""
        missing = self._records(load, seconds) - self._stored
        if load.api == "fetch" and missing > 0:
            self._tools.produce(self.port(DIRECT), STORED, missing, batch_size=str(STORED_BATCH_BYTES))
            self._stored += missing

    def run(self, load: Load, port: int, seconds: float) -> Moved:
        """Run the tool through ``port``, with the amount of data for about that time."""
        records = self._records(load, seconds)
        if load.api == "fetch":
            return self._tools.consume(port, STORED, records, f"bench-{next(self._groups)}")
        return self._tools.produce(port, BULK, records, batch_size=str(load.bytes))

    def require_running(self) -> None:
        if not self._broker.is_running:
            raise BenchError(f"the broker of the real-* rows has ended\n{self.log_tail()}")

    def close(self) -> None:
        self._broker.close()

    @staticmethod
    def _records(load: Load, seconds: float) -> int:
        return int(seconds * (CONSUMED_PER_S if load.api == "fetch" else PRODUCED_PER_S))
