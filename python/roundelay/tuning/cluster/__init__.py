"""``roundelay tune``: measures the algorithms on a cluster and writes a tuning file."""
