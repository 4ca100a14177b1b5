"""Work and memory of every rank of a layout in one step: of a transformer, and of any other job graph."""
