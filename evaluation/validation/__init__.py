"""Our figures held against figures from elsewhere."""
