"""Makes ``protocol/api_table.json`` from the schemas that kafka-clients carries: ``python -m protocol.generate``.

The one part of ``protocol/`` that runs programs; nothing imports it.
"""
