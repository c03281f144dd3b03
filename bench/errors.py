"""The error of benchmarks."""


class BenchError(Exception):
    """A benchmark failed: a program is missing or failed, or the load saw an error. The text says which and
    what to do.
    """
