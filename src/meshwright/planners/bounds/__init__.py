"""Results of an episode that only those can reach or bound who know its arrivals beforehand."""
