"""Classic deciders: fixed degrees and rules of thumb."""
