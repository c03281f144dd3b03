"""Spark as it runs: the session, what its workers need, folders through its JVM, how far it is.

Must not know what it is used for: no record, no table, no quota.
"""
