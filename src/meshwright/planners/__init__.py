"""Classic deciders: fixed degrees and rules of thumb, behind the one interface that networks share."""
