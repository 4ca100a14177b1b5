"""The decision: partition, placement, plan, its JSON schema and legality."""
