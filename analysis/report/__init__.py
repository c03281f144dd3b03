"""The report of a period: tables as Parquet, a CSV for whoever pays, and one HTML file to look at.

``tables`` computes and writes, ``summary`` takes from the tables the little that is drawn (``findings``), and ``page``
turns that into HTML. ``findings``, ``sections`` and ``page`` are plain Python and know nothing of Spark.
"""
