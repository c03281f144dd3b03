"""Kafka's wire protocol, sans-I/O.

Owns the API table, the splitting of a byte stream into frames, request headers, and the locator that finds and patches
the few bytes Sluice may change. It must not know sockets, loops, the time, quotas or settings.
"""
