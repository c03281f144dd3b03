"""Quotas as other tools write them: a module for each format, which names what it cannot say. ``known`` lists them."""
