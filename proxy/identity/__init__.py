"""Who a client is: certificates, SASL as it passes by, the PROXY protocol.

Sans-I/O but for the parts that say so. A name that a client gives is a claim; it becomes the user of a connection
when the broker has accepted it, and not a byte sooner (docs/security.md).
"""
