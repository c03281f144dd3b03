"""Demand, made ready for the kernel: sums of gold in the driver, and rows of some counters in workers.

Between the tables and the kernel; must not know what is asked of a replay.
"""
