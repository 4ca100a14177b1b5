"""Decision problems: a world has its dynamics, its typed graph and its rules; environments, networks and training exist once."""
