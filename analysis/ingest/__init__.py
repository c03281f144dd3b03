"""Usage records into the table: documents are decoded, checked and told apart, and a batch is published exactly once.

The only room that writes the table; must not know which source documents came from.
"""
