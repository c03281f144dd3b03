"""The one name that Sluice installs. Its packages lie below it, and are found before any others of their names.

Their imports are written ``from config…``, ``from proxy…``: names that anybody may have in the working directory or on
PYTHONPATH. So the folder that holds Sluice's own goes first in ``sys.path``, before anything of Sluice is imported
(docs/decisions/0018).
"""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
HOME = _HERE if (_HERE / "proxy").is_dir() else _HERE.parents[2]
"""Where the packages are: beside this file when installed, at the top of the repository in a checkout."""


def main() -> None:
    """Run the command line."""
    sys.path.insert(0, str(HOME))
    from proxy.__main__ import main as run

    run()
