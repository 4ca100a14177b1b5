"""Ops get devices, one group of them after another."""
