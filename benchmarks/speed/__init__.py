"""The parts that have to be fast, timed: ``make bench``."""
