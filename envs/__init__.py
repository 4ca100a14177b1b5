"""Gymnasium environments over the cluster dynamics: state, candidates, observation, reward, viewer. No torch.

Importing this floor registers the environments with Gymnasium.
"""

from .registration import register

register()
