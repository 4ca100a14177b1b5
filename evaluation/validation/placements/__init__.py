"""Published placements of ops computed again, and every form of the value of one instance."""
