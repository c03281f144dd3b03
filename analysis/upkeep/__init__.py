"""Maintenance of a warehouse: compaction of small files, removal of old hours, and the lock between such programs.

Must not know the content of rows.
"""
