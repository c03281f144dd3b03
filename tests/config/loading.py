"""What the loader says about a file."""

from pathlib import Path

import pytest

from config.loader import load_settings
from config.problems import ConfigError


def problems(file: Path, content: str) -> list[str]:
    """Return every problem of a configuration that must be refused, from its line on."""
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    return [str(problem).removeprefix(str(file)) for problem in caught.value.problems]


def refused(file: Path) -> list[str]:
    """Return the paths of everything that is refused; empty if the file is taken."""
    try:
        load_settings(file)
    except ConfigError as error:
        return [problem.path for problem in error.problems]
    return []
