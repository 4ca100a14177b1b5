"""What is stored, again: decisions decided anew, and a span of the past under other policies."""
