"""Jobs that arrive at a cluster, wait, run and leave: the rules, the state and the record of episodes."""
