"""``sluice doctor``: connects as a client would, and reports for each step whether it works and, if not, how to fix it.

It runs outside the proxy, and also connects to the brokers with the proxy's own settings; it changes nothing, and
prints no secret.
"""
