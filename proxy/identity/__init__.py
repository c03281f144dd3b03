"""The identity of clients: certificates, and SASL as it passes by.

Sans-I/O, apart from the modules that say otherwise. A name given by a client is a claim; it becomes the user of a
connection only once the broker has accepted it (docs/security.md).
"""
