"""Simulation: lowering, the compiled kernel and its plain reference, cluster dynamics, records."""
