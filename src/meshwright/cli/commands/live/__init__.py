"""Commands for a live cluster: one file for each."""
