"""Maintenance of a warehouse: compaction of small files, and removal of old hours.

Must not know the content of rows.
"""
