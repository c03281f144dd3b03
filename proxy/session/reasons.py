"""Why a client is not read from: flags, of which a session has any number at a time.

It is read again when none is left.
"""

CONNECTING = 1
"""The broker connection does not stand yet."""
THROTTLED = 2
"""Until the throttle was computed + throttle time (KIP-219)."""
ANSWERING = 4
"""Until what is in flight is answered: a throttle ends with its answer out, whichever is later (KIP-219)."""
CROWDED = 8
"""As many requests wait for their answers as a session may have."""
DRAINING = 16
"""The proxy is stopping."""
BACKPRESSURE = 32
"""The broker takes no more bytes. It needs no border: what was read is forwarded."""
FINISHED = 64
"""The client has closed its half; what it sent is still worked on."""
RAW_TOKENS = 128
"""Not a reason to stop, but to read otherwise: SASL tokens come without Kafka's headers (SaslHandshake v0)."""
UNTAKEN = 256
"""The client takes no more answers. A broker, too, reads no request while the answer to the last one is not sent."""
TURN = 512
"""So many requests came at once that others have their turn first."""
IN_LINE = 1024
"""A Produce or Fetch waits for its turn under its quota."""
MIDWAY = 2048
"""So does the rest of a large Produce: like back-pressure it needs no border."""
LOCAL = 4096
"""The proxy itself is to answer, and is still at it: the next answer is its own."""
WITHIN = BACKPRESSURE | MIDWAY
"""The reasons that stop within a frame too."""
HELD_UP = CONNECTING | THROTTLED | ANSWERING | CROWDED | DRAINING | UNTAKEN | TURN | IN_LINE | LOCAL
"""The reasons that stop between frames: a request under way is forwarded to its end."""
AT_BORDER = HELD_UP | RAW_TOKENS
"""What the hot path leaves to others at a frame border."""
UNTIL_ANSWERED = ANSWERING | CROWDED | DRAINING | FINISHED
"""The reasons that end when what is in flight has been answered."""
