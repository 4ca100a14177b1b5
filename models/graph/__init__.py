"""The graph policy of any world: PyG encoder, action head, compiled decisions, a player and its file."""
