"""The arithmetic of a replay: NumPy alone, pure functions over arrays.

Owns demand, the fluid model of a throttle, what a throttle hid, the search for the smallest quota, and which clients
share a counter. It must not know Spark, Arrow or pandas, nor where an array came from.
"""
