"""Pages of clients are made of the rows that metrics are held against DuckDB with."""

from tests.analysis.metrics.conftest import both

__all__ = ["both"]
