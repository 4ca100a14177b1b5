"""Policies and searches that group distant devices into stages, compared on the same networks."""
