"""Several workers, each in a process of its own with brokers of its own. With one worker, this package is not loaded.

The supervisor has a ``Workers``, which has the methods of a ``Worker`` and passes each call on; it binds every port
once, and hands the listening sockets to all workers (``ports``). It places brokers, and starts a process again that has
ended (``child``). Calls cross as pickles over a socket (``channel``).
"""
