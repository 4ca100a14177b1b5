"""What every rank of a layout does and holds in one step: of a transformer, and of any other job graph."""
