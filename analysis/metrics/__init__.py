"""Answers from usage records, one module a question.

What needs every row is made in tasks (``reading.Making``): sums of clients, what was muted, how full counters were. The
rest is made of these in the driver, by pure functions of Arrow and NumPy. Nothing here knows files, options or HTML.
Their tests hold each against DuckDB on the same Parquet.
"""
