"""What happens when a plan runs: lowering, the compiled kernel and its plain reference, cluster dynamics, records."""
