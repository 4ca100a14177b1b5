"""Workers that play the episodes of an evaluation: this process, several, or the nodes of a Ray cluster."""
