"""Gold: small tables that Spark makes from rows, once, and that reports read by DuckDB, without Spark.

docs/analysis-tables.md has their columns. ``gold/<table>_hour/date=YYYY-MM-DD/hour=HH`` has each UTC hour, and
``gold/<table>_day/date=YYYY-MM-DD`` each day that is over, with the same columns. ``gold/made/date=YYYY-MM-DD.json``
lists the batches of rows that each hour was made from, and the hours that the day was made from. An hour is made again
when its batches change; a day is valid while it has all hours. Tables of an hour exist even without rows.
"""
