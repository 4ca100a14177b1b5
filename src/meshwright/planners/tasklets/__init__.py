"""Planners that group distant devices into stages: enumeration of regular groupings, a genetic search, annealing."""
