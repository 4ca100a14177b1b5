"""Elastic jobs on measured applications: what a published simulator of Pollux computes, compiled."""
