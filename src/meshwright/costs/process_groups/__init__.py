"""Process groups of a layout: their ranks, how these stand on the hosts, and what a message over them costs."""
