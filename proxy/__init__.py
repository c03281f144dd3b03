"""The program: every socket, every task, the command line.

It composes ``config``, ``protocol`` and ``quotas``; nothing below it knows a loop, a socket or the time.
"""

__version__ = "0.1.0"


def build() -> str:
    """Return how the hot modules run: "compiled" (docs/decisions/0020) or "pure Python"."""
    from importlib.util import find_spec

    found = find_spec("proxy.session.session")
    return "pure Python" if found is None or str(found.origin).endswith(".py") else "compiled"
