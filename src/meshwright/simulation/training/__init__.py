"""Training strategies as execution graphs: steps without sums between averages, and rounds of many workers."""
