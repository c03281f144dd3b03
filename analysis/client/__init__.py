"""One client's own page: what an operator sends to the team that owns the client.

The rows of the client, and of those who share a counter with it, are read once and kept (``kept``). All else is made
of these few: how each counter went (``charged``, ``courses``), what other limits would have done (``scaled``), with
whom it shared (``company``). ``job`` puts it together, ``page`` draws it.

It may use what reports and what-if are made of; they must not know of it.
"""
