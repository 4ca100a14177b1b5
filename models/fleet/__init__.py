"""Policies of fleets: the network, the price of a device-second that it sets, and files of it."""
