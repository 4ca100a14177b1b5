"""Our figures compared with figures from elsewhere."""
