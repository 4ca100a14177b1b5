"""Where the ops of a job graph are cut into pipeline stages, so that its step takes least among the cuts that fit."""
