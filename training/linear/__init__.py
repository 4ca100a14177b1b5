"""A linear scorer that is tuned by trying weights."""
