"""``python -m deploy.demo``: Sluice at work, in front of a real cluster, with real clients.

It owns what is shown and how it is judged. Cluster, proxy and clients are those of ``tests.harness``; nothing is
simulated, and what is measured is measured at the clients.
"""
