"""Benchmarks of the analysis: CPU per million rows and memory of ``sluice analyze …``, checked with DuckDB.

Owns the generated records and the measuring of process trees. Depends on the command line of the analysis, the format
of documents (docs/usage-records.md), and, for the comparison with DuckDB, the queries of a report.
"""
