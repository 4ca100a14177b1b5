"""Commands beside a live cluster: one file for each."""
