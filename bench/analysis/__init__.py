"""What analysis costs: CPU per million rows and memory of ``sluice analyze …``, and of DuckDB on the same tables.

Owns the generated records and the measuring of process trees. Of the analysis it knows the command line, the format
of documents (docs/usage-records.md), and for the comparison with DuckDB the questions that a report asks.
"""
