"""From a config to a run folder, with resume."""
