"""Answers from usage rows, one module a question, each a pure function from DataFrames to a DataFrame.

They know rows (``analysis.schema.ROWS``) and nothing of files, options or HTML. Whatever they compute is plain SQL:
grouping, windows, joins; nothing goes through Python. Their tests hold each against DuckDB on the same Parquet.
"""
