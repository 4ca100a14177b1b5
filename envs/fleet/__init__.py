"""The fleet as an environment: `meshwright/JobPartitioning-v1`, its settings, episodes side by side, observations, rewards."""
