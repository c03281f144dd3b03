"""``sluice`` and ``python -m proxy``."""

import sys

from proxy import version


def main() -> None:
    """Run the command line; ``--version`` is answered without loading it."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"{version()}\n")
        return
    from proxy.cli import cli

    cli(prog_name="sluice")


if __name__ == "__main__":
    main()
