"""The fast model of jobs that share links, held against sets of jobs that are simulated event by event."""
