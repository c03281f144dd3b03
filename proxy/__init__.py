"""The program: sockets, tasks and the command line.

It composes ``config``, ``protocol`` and ``quotas``, which know no loop, socket or clock.
"""

__version__ = "0.1.0"
COMPILED = "compiled"


def build() -> str:
    """Return how the hot modules are built: "compiled" (docs/decisions/0020) or "pure Python"."""
    from importlib.util import find_spec

    found = find_spec("proxy.session.session")
    return "pure Python" if found is None or str(found.origin).endswith(".py") else COMPILED


def version() -> str:
    """Return what ``sluice --version`` prints: the version, the build, and how to get the faster one."""
    said = f"sluice {__version__} ({build()})"
    if build() == COMPILED:
        return said
    return f"{said}\nCompiled it needs less CPU: install it (`pip install .`) where a C compiler is."
