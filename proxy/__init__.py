"""The program: every socket, every task, the command line.

It composes ``config``, ``protocol`` and ``quotas``; nothing below it knows a loop, a socket or the time.
"""

__version__ = "0.1.0"
