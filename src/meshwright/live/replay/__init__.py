"""Replaying what is stored: decisions made again, and a span of the past under other policies."""
