"""Checks that a client's first bytes are a Kafka request, before a session or a broker connection is spent on it."""

from protocol.frames import REQUEST_HEAD, FrameSplitter
from proxy.session.policies.login import GSSAPI_TOKEN
from proxy.session.serving import API_VERSIONS_KEY
from proxy.session.worker_state import WorkerState


def is_request(begun: bytes, worker: WorkerState, *, authenticated: bool) -> bool:
    """Whether ``begun`` holds the header of a request that is served; False if more bytes are needed.

    Raises ProtocolError if it begins with anything else. On listeners that demand SASL, tokens without a request header
    may come first (GSSAPI of Kafka 0.9).
    """
    limit = worker.request_limit if authenticated else worker.unauthenticated_request_limit
    if len(begun) >= REQUEST_HEAD.size:  # the splitter below decides the same, and reports what is wrong
        size, key_version, _, _ = REQUEST_HEAD.unpack_from(begun)
        if key_version in worker.served and REQUEST_HEAD.size - 4 <= size <= limit:
            return True
    _, _, heads = FrameSplitter(REQUEST_HEAD, limit).split(begun, 1)
    if not heads:
        return False
    key_version = heads[0][1]
    api_key = key_version >> 16
    begins_gssapi = not authenticated and api_key >> 8 == GSSAPI_TOKEN
    if key_version not in worker.served and api_key != API_VERSIONS_KEY and not begins_gssapi:
        worker.answerer(key_version)
    return True
