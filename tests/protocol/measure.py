"""``python -m tests.protocol.measure``: what finding and changing costs, in microseconds a response (best of many).

Printed, never asserted: the numbers are those of the machine and of its neighbours.
"""

import time
from collections.abc import Callable

from protocol.headers import produce_acks, request_body_offset
from protocol.locator import locate, splice
from protocol.table import SPECS, key_version
from tests.protocol.encode import encode_frame

ROUNDS = 60


def microseconds(work: Callable[[], object], times: int) -> float:
    """Return the time of one call, the best of ROUNDS rounds of ``times`` calls."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, time.perf_counter() - begin)
    return best / times * 1e6


def metadata(brokers: int, topics: int, partitions: int) -> dict[str, object]:
    """Return the values of a Metadata response."""
    replicas = [1, 2, 3]
    partition = {"leader_id": 1, "replica_nodes": replicas, "isr_nodes": replicas}
    return {
        "brokers": [{"node_id": i, "host": f"broker-{i}.kafka.internal", "port": 9092} for i in range(brokers)],
        "topics": [{"name": f"topic-{i}", "partitions": [partition] * partitions} for i in range(topics)],
    }


def produce(topics: int, partitions: int) -> dict[str, object]:
    """Return the values of a Produce response."""
    return {"responses": [{"name": "orders", "partition_responses": [{}] * partitions}] * topics}


RESPONSES = (
    ("Metadata v12, 100 brokers, 1000 x 10 partitions", 3, 12, metadata(100, 1000, 10), 5),
    ("Metadata v12, 3 brokers, 10 x 3 partitions", 3, 12, metadata(3, 10, 3), 200),
    ("Metadata v8, 3 brokers, 10 x 3 partitions", 3, 8, metadata(3, 10, 3), 200),
    ("Produce v9, 1 x 1", 0, 9, produce(1, 1), 500),
    ("Produce v11, 1 x 1", 0, 11, produce(1, 1), 500),
    ("Produce v11, 10 x 10", 0, 11, produce(10, 10), 50),
)


def main() -> None:
    """Print the table."""
    addresses = {node_id: (b"proxy.example.com", 20000 + node_id) for node_id in range(100)}
    for title, api_key, api_version, values, times in RESPONSES:
        spec = SPECS[key_version(api_key, api_version)]
        frame = encode_frame(spec, values)
        find = microseconds(lambda: locate(spec, frame), times)  # noqa: B023  called before the next turn
        both = microseconds(lambda: splice(frame, locate(spec, frame), 100, addresses), times)  # noqa: B023  same
        print(f"{title:<50}{len(frame):>9} bytes{find:>9.2f} find{both:>9.2f} find and splice")
    spec = SPECS[key_version(0, 9)]
    head = bytes.fromhex("0000004000000009000000050008") + b"producer" + bytes.fromhex("0000ffff00007530")
    frame = head + bytes(68 - len(head))
    header = microseconds(lambda: request_body_offset(spec, frame, 0, 68), 2000)
    acks = microseconds(lambda: produce_acks(spec, frame, 23, 68), 2000)
    print(f"{'Produce v9 request':<50}{len(frame):>9} bytes{header:>9.2f} header{acks:>7.2f} acks")


if __name__ == "__main__":
    main()
