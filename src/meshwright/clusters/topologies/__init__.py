"""Topologies: the interface that all of them offer, and a file for each."""
