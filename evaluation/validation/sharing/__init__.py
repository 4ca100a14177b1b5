"""The fast model of jobs that share links, compared with sets of jobs that are simulated event by event."""
