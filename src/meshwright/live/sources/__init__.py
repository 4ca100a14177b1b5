"""Sources of the state of a live cluster: a file for each scheduler."""
