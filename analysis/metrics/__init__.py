"""Answers from usage records, one module a question.

What needs every row (``scan.UsageRows``) is worked on in the workers, by Arrow and NumPy: sums of clients, what was
muted, how full counters were. The rest is plain SQL over these, pure functions from DataFrames to a DataFrame. Nothing
here knows files, options or HTML. Their tests hold each against DuckDB on the same Parquet.
"""
