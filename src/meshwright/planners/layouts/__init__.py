"""Search over all parallel layouts of one job."""
