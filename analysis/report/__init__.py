"""The report of a period: SQL over gold (``sql/``, a file for each table), by DuckDB, and a page that shows the tables.

``tables`` opens a period and makes them; ``job`` writes them; ``page`` has the HTML. Spark is not started, and every
figure is defined in ``sql/`` alone.
"""
