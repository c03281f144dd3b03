"""What is said of a quota file."""

from pathlib import Path
from textwrap import dedent

import pytest

from config.problems import ConfigError
from quotas.stores.file import load


def problems(file: Path, content: str) -> list[str]:
    file.write_text(dedent(content))
    with pytest.raises(ConfigError) as caught:
        load(file)
    return [str(problem).removeprefix(str(file)) for problem in caught.value.problems]


def warnings(file: Path, content: str) -> list[str]:
    """Return every warning of a file that must be taken, from its line on."""
    file.write_text(dedent(content))
    return [str(warning).removeprefix(str(file)) for warning in load(file).warnings]
