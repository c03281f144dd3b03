"""The warehouse over the years: many small files made few large ones, and what is old removed.

Owns who may do so at a time, what of the table may be touched beside a running ingestion, and setting aside before
removing. What readers make of it is in ``table/swaps``. Must not know what the rows are about.
"""
