"""A stand-in for a Kafka broker: enough of the protocol for producers, and nothing behind it.

It answers ApiVersions, Metadata, InitProducerId and Produce, and drops the records. Every topic exists, with one
partition. It has no quotas: each throttle that a client sees comes from Sluice.
"""

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from protocol.errors import ProtocolError
from protocol.headers import produce_acks, request_body_offset
from protocol.messages import read_message, write_message
from protocol.overlay import API_VERSIONS, METADATA, PRODUCE
from protocol.produce_topics import ProduceTopics
from protocol.table import SPECS, ApiSpec, key_version

NODE_ID: Final = 1
HOST: Final = "127.0.0.1"

_INIT_PRODUCER_ID: Final = 22
_OFFERED: Final = {PRODUCE: (0, 12), METADATA: (0, 12), API_VERSIONS: (0, 3), _INIT_PRODUCER_ID: (0, 4)}
"""Lowest and highest version by api key. From version 13 on a Produce request has topic ids instead of names."""
_UNSUPPORTED_VERSION: Final = 35
_HEAD: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">i")


@contextmanager
def stand_in() -> Iterator[int]:
    """Serve on a free port of the loopback interface, in threads of this process; yield the port."""
    with socketserver.ThreadingTCPServer((HOST, 0), _Connection) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Answer requests until the client closes, or sends what is not offered."""
        port = self.request.getsockname()[1]
        with suppress(OSError, ProtocolError, struct.error):
            while size := self.rfile.read(_SIZE.size):
                response = answer(size + self.rfile.read(*_SIZE.unpack(size)), port)
                if response is None:
                    break
                self.wfile.write(response)


def answer(frame: bytes, port: int) -> bytes | None:
    """Return the response to a request, b"" if it has none; None if the request is not offered.

    Raises ProtocolError for an invalid request.
    """
    api_key, version, correlation_id = _HEAD.unpack_from(frame, _SIZE.size)
    lowest, highest = _OFFERED.get(api_key, (0, -1))
    error_code = 0
    if api_key == API_VERSIONS and version > highest:
        version, error_code = 0, _UNSUPPORTED_VERSION  # in the layout of version 0 (KIP-511)
    elif not lowest <= version <= highest:
        return None
    spec = SPECS[key_version(api_key, version)]
    body_at = request_body_offset(spec, frame, 0, len(frame))
    values: dict[str, Any] = {"throttle_time_ms": 0, "error_code": error_code}
    if api_key == API_VERSIONS:
        values["api_keys"] = [{"api_key": key, "min_version": a, "max_version": b} for key, (a, b) in _OFFERED.items()]
    elif api_key == METADATA:
        values |= _metadata(spec, frame, body_at, port)
    elif api_key == PRODUCE:
        if produce_acks(spec, frame, body_at, len(frame)) == 0:
            return b""
        values["responses"] = _produced(spec, frame, body_at)
    else:
        values |= {"producer_id": 1, "producer_epoch": 0}
    header = _SIZE.pack(correlation_id) + bytes(spec.response_header_version)
    payload = header + write_message(spec.response_layout, values)
    return _SIZE.pack(len(payload)) + payload


def _metadata(spec: ApiSpec, frame: bytes, body_at: int, port: int) -> dict[str, Any]:
    """Return this broker, and each topic that is asked for, with a partition that it leads."""
    wanted = read_message(str(spec), spec.request_layout, frame, body_at, len(frame))["topics"] or ()
    replicas = {"replica_nodes": [NODE_ID], "isr_nodes": [NODE_ID], "offline_replicas": []}
    partition = {"error_code": 0, "partition_index": 0, "leader_id": NODE_ID, "leader_epoch": 0, **replicas}
    topic = {"error_code": 0, "is_internal": False, "topic_authorized_operations": -(2**31), "partitions": [partition]}
    topics = [{**topic, "topic_id": bytes(16), "name": each["name"]} for each in wanted]
    broker = {"node_id": NODE_ID, "host": HOST, "port": port, "rack": None}
    cluster = {"cluster_id": "stand-in", "controller_id": NODE_ID, "cluster_authorized_operations": -(2**31)}
    return {"brokers": [broker], "topics": topics, **cluster}


def _produced(spec: ApiSpec, frame: bytes, body_at: int) -> list[dict[str, Any]]:
    """Return that every topic's partition has been written."""
    names = ProduceTopics(spec, len(frame) - body_at).feed(frame, body_at, len(frame))
    times = {"log_append_time_ms": -1, "log_start_offset": 0}
    errors = {"error_code": 0, "record_errors": [], "error_message": None}
    partition = {"index": 0, "base_offset": 0, **times, **errors}
    return [{"name": name.decode(), "partition_responses": [partition]} for name in names]
