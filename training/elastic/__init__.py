"""Weights of elastic shares: tried on drawn workloads, from a configuration to a run folder."""
