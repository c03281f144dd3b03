"""The rows on a real broker: its listeners, the frames that are recorded and replayed, the tools of the distribution.

Knows the rows' loads and the harness; what is measured of the proxies, and how it is reported, belongs to the modules
above.
"""
