"""Jobs and flows that share the links of a cluster."""
