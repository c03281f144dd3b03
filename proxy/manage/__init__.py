"""``sluice quotas``: what operators do with quotas, wherever they are kept."""
