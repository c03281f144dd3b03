"""Gold: small tables that Spark makes from rows, once, and that reports read by DuckDB, without Spark.

docs/analysis-tables.md has their columns. ``gold/<table>_hour/date=YYYY-MM-DD/hour=HH/made=ID`` has each UTC hour, and
``gold/<table>_day/date=YYYY-MM-DD/made=ID`` each day that is over, with the same columns. ``gold/made/date=….json``
names the versions in force, the batches of rows that each hour was made from, and the hours of the day. An hour is made
again when its batches change; a day is valid while it has all hours. Tables of an hour exist even without rows.
"""
