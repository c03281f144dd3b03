"""``sluice analyze ingest``, with gold after each batch: its own five minutes are long for a test."""

from analysis.cli import analyze
from analysis.commands import ingest

if __name__ == "__main__":
    ingest._GOLD_EVERY_S = 0  # type: ignore[misc]  # a constant
    analyze(prog_name="sluice analyze")
