"""A plan in the form of a scheduler or launcher."""
