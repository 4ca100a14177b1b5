"""Jobs of the published elastic workloads get numbers of ranks, round after round."""
