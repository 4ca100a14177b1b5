"""Gymnasium environments over the cluster dynamics: state, candidates, observation, reward, viewer. No torch."""
