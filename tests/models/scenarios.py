"""A network that serves another scenario than it was made for."""

from meshwright.models.encoders import StaticTensors


def set_scenario(network, static):
    """Let a network serve other graphs, devices, degrees or placement rules."""
    network.static = StaticTensors(static).to(next(network.parameters()).device)
    network.forget()
