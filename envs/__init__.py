"""Gymnasium environments over the cluster dynamics."""
