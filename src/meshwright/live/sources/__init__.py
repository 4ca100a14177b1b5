"""Where the state of a live cluster is read from: a file for each scheduler."""
