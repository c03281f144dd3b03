"""The tests against the wheel that ``make test-compiled`` builds and installs, instead of the sources around them."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from deploy.hatch_build import modules, settings

ROOT: Final = Path(__file__).parents[2]


class NotCompiledError(Exception):
    """What would be tested is not what was to be tested."""


def use_installed() -> None:
    """Have Sluice's packages imported from the installed wheel. Raises NotCompiledError unless all hot modules are."""
    kafka_sluice = import_module("kafka_sluice")
    sys.path.insert(0, str(kafka_sluice.HOME))
    for package in ("analysis", "config", "protocol", "proxy", "quotas"):
        import_module(package)  # what is imported of it later is found in it, whatever pytest puts first in the path
    found = [str(import_module(name).__file__) for name in names()]
    if sources := [file for file in found if not file.endswith(".so")]:
        raise NotCompiledError(f"not compiled: {', '.join(sources)}")


def names() -> list[str]:
    """Return the modules that a wheel has compiled."""
    return [path.removesuffix(".py").replace("/", ".") for path in modules(ROOT, settings(ROOT))]
