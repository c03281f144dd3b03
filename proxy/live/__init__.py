"""Shows what a running proxy does: ``sluice top``, ``clients``, ``throttled`` and ``explain --live``.

All of it comes from the admin port (``/api/v1``). It knows the fields of answers, and nothing of the proxy's inside.
"""
