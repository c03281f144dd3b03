"""``python -m tests.protocol.fuzz --seconds N``: any bytes, split anywhere, give frames or a ProtocolError.

Inputs are random bytes, and frames of the vectors with bytes, lengths and counts changed. With atheris installed,
``--atheris`` lets it choose the inputs by coverage. What fails is printed as hexadecimal and can be given back.
"""

import argparse
import importlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from protocol.api_versions import advertised_limits, intersect
from protocol.errors import ProtocolError
from protocol.frames import RESPONSE_HEAD, FrameSplitter
from protocol.locator import locate, splice, throttle_position
from protocol.outline import Outline
from protocol.overlay import ADDRESSES_LAST, API_VERSIONS
from protocol.resumable_walk import ResumableWalk, names_nobody
from protocol.rewriting import Rewriting
from protocol.table import SPECS, ApiSpec
from tests.conformance.frames import Requests

VECTORS = Path(__file__).parents[1] / "vectors" / "frames.json"
LIMIT = 100_000
ADDRESSES = dict.fromkeys(range(5), (b"proxy.example.com", 9092))
LIMITS = advertised_limits()
ALL_SPECS = tuple(SPECS.values())

TELLING = [b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\0"]
"""What lengths, counts and varints are made of when they go wrong."""


def read_anything(data: bytes, spec: ApiSpec, cuts: list[int]) -> None:
    """Read bytes as requests and as responses, in one piece and cut; only ProtocolError may come out of it."""
    pieces = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    (whole, closed), (cut, closed_cut) = (read_requests(chunks) for chunks in ([data], pieces))
    assert closed == closed_cut, f"closed: {closed}, cut at {cuts}: {closed_cut}"
    # What stands before a bad size in the same chunk is closed with it.
    assert cut[: len(whole)] == whole if closed else cut == whole, f"cut at {cuts}: {cut} instead of {whole}"
    read_responses(pieces, spec)
    read_response(data, spec)
    if spec.endpoints and spec.api_key in ADDRESSES_LAST and len(data) > RESPONSE_HEAD.size:
        walk_through(data, cuts, spec)


def read_requests(chunks: list[bytes]) -> tuple[list[object], bool]:
    """Return what a session sees of the requests, and whether it would close."""
    requests = Requests(LIMIT)
    try:
        for chunk in chunks:
            requests.feed(chunk)
    except ProtocolError:
        return list(requests.facts), True
    return list(requests.facts), False


def read_responses(chunks: list[bytes], spec: ApiSpec) -> None:
    """Cut a stream of responses; a throttle at a fixed offset is looked for before the frame is complete."""
    splitter = FrameSplitter(RESPONSE_HEAD, LIMIT)
    try:
        for piece in chunks:
            chunk, position, heads = splitter.split(piece)
            for size, _ in heads:
                end = position + 4 + size
                if spec.throttle_offset >= 0:
                    throttle_position(spec, chunk, position, end)
                if end <= len(chunk):
                    read_response(chunk[position:end], spec)
                position = end
    except ProtocolError:
        pass


def read_response(frame: bytes, spec: ApiSpec) -> None:
    """Locate and splice; what was found is found again, changed, and everything else has kept its length."""
    try:
        located = locate(spec, frame)
    except ProtocolError:
        pass
    else:
        spliced = splice(frame, located, 7, ADDRESSES)
        again = locate(spec, spliced)
        assert len(again.endpoints) == len(located.endpoints)
        assert again.throttle_offset == located.throttle_offset
        told = {host for host, _ in ADDRESSES.values()}
        assert all(each.host in told or each.host.endswith(b".invalid") for each in again.endpoints if each.host)
        if spec.endpoints:
            rewrite_long(frame, spec, splice(frame, located, None, ADDRESSES))
    if spec.api_key == API_VERSIONS:
        with suppress(ProtocolError):
            intersect(frame, spec, LIMITS)


def walk_through(data: bytes, cuts: list[int], spec: ApiSpec) -> None:
    """Take bytes as a long response, in one piece and cut: the same comes out, of the same length, and nobody is named
    whom clients are not told of.
    """
    frame, outline = (len(data) - 4).to_bytes(4, "big") + data[4:], Outline(spec)
    pieces = [frame[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True)]
    results: list[bytes | None] = []
    for chunks in ([frame], pieces):
        walk, out = ResumableWalk(outline, len(frame) - 4, lambda each: ADDRESSES.get(each.node_id)), b""
        try:
            for chunk in filter(None, chunks):
                stop, written = walk.take(chunk, 0)
                out += chunk[:stop] + written
        except ProtocolError:
            results.append(None)
        else:
            assert not walk.left
            results.append(out)
    out_of_one, out_of_many = results
    assert out_of_one == out_of_many, f"cut at {cuts}"
    if out_of_one is None:
        return
    assert len(out_of_one) == len(frame)
    with suppress(ProtocolError):  # the locator refuses a null where the walk leaves that to the client
        told = {host for host, _ in ADDRESSES.values()}
        assert all(each.host in told for each in locate(spec, out_of_one).endpoints if each.host)
        assert not names_nobody(outline, frame, 0, len(frame) - 4) or not locate(spec, frame).endpoints


def rewrite_long(frame: bytes, spec: ApiSpec, expected: bytes) -> None:
    """Change a response as if it were long; it becomes the same."""
    rewriting = Rewriting(spec, frame, len(frame) - 4, None, lambda endpoint: ADDRESSES.get(endpoint.node_id))
    while not rewriting.advance():
        pass
    assert rewriting.written() + frame[rewriting.end :] == expected


# ---------------------------------------------------------------------------------------------------------- the inputs


def vectors() -> list[tuple[bytes, ApiSpec]]:
    """Return the frames of the vectors; for requests the version whose answer they could be is any."""
    document = json.loads(VECTORS.read_text(encoding="utf-8"))
    answers = {(spec.api_key, spec.api_version): spec for spec in ALL_SPECS}
    frames = []
    for case in (*document["requests"], *document["responses"], *document["malformed"], *document["lenient"]):
        spec = answers.get((case.get("api_key"), case.get("api_version")), ALL_SPECS[0])
        frames.append((bytes.fromhex(case["hex"]), spec))
    return [(frame, spec) for frame, spec in frames if len(frame) < 3000]


def inputs(chance: random.Random) -> Iterator[tuple[bytes, ApiSpec, list[int]]]:
    """Yield inputs without end."""
    known = vectors()
    while True:
        frame, spec = chance.choice(known)
        if chance.random() < 0.1:
            frame, spec = chance.randbytes(chance.randrange(100)), chance.choice(ALL_SPECS)
        if chance.random() < 0.2:
            frame += chance.choice(known)[0]
        data = mutated(frame, chance)
        if chance.random() < 0.7 and len(data) >= 4:
            data = (len(data) - 4).to_bytes(4, "big") + data[4:]
        cuts = sorted(chance.sample(range(len(data) + 1), k=min(len(data), chance.randrange(4))))
        yield data, spec, cuts


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """Return a frame with a few bytes overwritten, put in, taken out or cut off."""
    data = bytearray(frame)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data) + 1)
        change = chance.randrange(4)
        telling = chance.choice(TELLING)
        if change == 0:
            data[at : at + len(telling)] = telling
        elif change == 1:
            data[at:at] = telling
        elif change == 2:
            del data[at : at + chance.randrange(1, 5)]
        elif at:
            data[at - 1] = chance.randrange(256)
    return bytes(data)


def fuzz(chance: random.Random, go_on: Callable[[int], bool]) -> int:
    """Read inputs while ``go_on(count)``; return the count. Prints the input that fails."""
    count = 0
    for data, spec, cuts in inputs(chance):
        try:
            read_anything(data, spec, cuts)
        except BaseException:
            print(f"as a response of {spec}, cut at {cuts}: {data.hex()}", file=sys.stderr)
            raise
        count += 1
        if not go_on(count):
            break
    return count


def main() -> None:
    """Run for a while, or forever with atheris."""
    parser = argparse.ArgumentParser(prog="python -m tests.protocol.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--atheris", action="store_true")
    options = parser.parse_args()
    if options.atheris:
        atheris = importlib.import_module("atheris")

        def target(data: bytes) -> None:
            spec = ALL_SPECS[int.from_bytes(data[:2], "big") % len(ALL_SPECS)]
            read_anything(data[2:], spec, [len(data[2:]) // 2])

        atheris.Setup([sys.argv[0]], target)
        atheris.Fuzz()
        return
    seed = random.randrange(2**32) if options.seed is None else options.seed
    end = time.perf_counter() + options.seconds
    count = fuzz(random.Random(seed), lambda _: time.perf_counter() < end)
    print(f"{count} inputs, seed {seed}: frames or a ProtocolError, nothing else")


if __name__ == "__main__":
    main()
