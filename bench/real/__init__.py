"""Rows with a real broker: its listeners, recorded and replayed frames, the performance tools of the distribution.

It knows the rows' loads and the test harness; measuring proxies and reporting belong to the modules above.
"""
