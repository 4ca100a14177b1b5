"""Process groups of a layout: their ranks, on which hosts these are, and what a message over them costs."""
