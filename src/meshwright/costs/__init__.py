"""How long and how much: compute, and the communication layers (collectives, flows, network)."""
