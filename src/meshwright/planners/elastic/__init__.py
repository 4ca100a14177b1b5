"""Schedulers of elastic jobs: every round, which nodes each job has."""
