"""Transformers under a parallel layout: what every rank does, how long it takes and how much memory it needs."""
