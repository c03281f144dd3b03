"""The kernel's input: gold's sums in the driver, and rows of some counters in workers.

Must not know the commands that use it.
"""
