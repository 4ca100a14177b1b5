"""A live cluster: what runs there now, kept so that nothing is lost."""
