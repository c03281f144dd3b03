"""Generator of ``protocol/api_table.json`` from the schemas in kafka-clients: ``python -m protocol.generate``.

The only part of ``protocol/`` that runs programs; nothing imports it.
"""
