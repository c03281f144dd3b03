"""``sluice calibrate``: how much dearer or cheaper requests are at a broker than ``request_costs`` says."""
