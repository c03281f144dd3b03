"""``sluice quotas``: commands that show and change quotas in any store."""
