"""Searches that improve a placement step by step: annealing and multilevel refinement, with compiled moves."""
