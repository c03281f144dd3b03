"""The report of a period: tables by DuckDB over gold (``sql/``, a file each), and a page that shows them.

Works without Spark. Every figure is defined in ``sql/`` alone.
"""
