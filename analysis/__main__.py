"""``sluice analyze`` as a program of spark-submit."""

from analysis.cli import analyze

if __name__ == "__main__":
    analyze(prog_name="sluice analyze")
