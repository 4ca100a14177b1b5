"""What may be decided on a cluster: its blocks, the step times on them, and how blocks stand in each other's way."""
