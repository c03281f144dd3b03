"""The arithmetic of a replay: pure functions over NumPy arrays.

Owns demand and its bounds, the fluid model of a throttle, the search for the smallest quota, and the assignment of
clients to counters. Must not know Spark, Arrow or pandas.
"""
