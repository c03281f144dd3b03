"""The one way in which a benchmark fails."""


class BenchError(Exception):
    """No figures: a program is missing or failed, or the load saw an error. The text says which and what to do."""
