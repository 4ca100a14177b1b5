"""Policies without learning, behind the one interface that networks share; `planning` asks any policy about a single job."""
