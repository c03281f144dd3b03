"""``sluice doctor``: connects as a client would, and says of each step whether it works and, if not, what to do.

It is a program of its own that talks to a running proxy from outside, and to the brokers with the proxy's own settings;
it changes nothing, and prints no secret.
"""
