"""The decision space of a cluster: its blocks, the step times on them, and which blocks exclude each other."""
