"""Spark: the session, the packages for its workers, files through its JVM, progress, signals.

Must not know records, tables or quotas.
"""
