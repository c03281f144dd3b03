"""``python -m protocol.generate``: write the API table, or with ``--check`` compare it with the jars."""

import argparse
import sys
from pathlib import Path
from subprocess import CalledProcessError

from protocol.generate.jars import RELEASES, jar_directory
from protocol.generate.table import dump, merge, render

TABLE = Path(__file__).parent.parent / "api_table.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m protocol.generate", description=__doc__)
    parser.add_argument("jars", nargs="*", type=Path, help="directories of kafka-clients jars, oldest release first")
    parser.add_argument("--output", type=Path, default=TABLE)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the table differs")
    options = parser.parse_args()
    try:
        directories = options.jars or [jar_directory(release) for release in RELEASES]
        text = render(merge([dump(directory) for directory in directories]))
    except (OSError, CalledProcessError) as error:  # no Java, no Maven, or their errors
        sys.stderr.write(f"{error}\n")
        return 2
    if not options.check:
        options.output.write_text(text, encoding="utf-8")
    elif options.output.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{options.output} differs from {', '.join(map(str, directories))}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
