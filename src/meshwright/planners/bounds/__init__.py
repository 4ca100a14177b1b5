"""What an episode allows to those who know its arrivals beforehand."""
