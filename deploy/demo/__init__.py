"""``python -m deploy.demo``: Sluice at work, in front of a real cluster, with real clients.

It owns the display and the verdict. Cluster, proxy and clients come from ``tests.harness``; nothing is simulated, and
all rates are measured at the clients.
"""
