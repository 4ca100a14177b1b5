"""One job, one decision: what a layout costs, which one is best, which plan a policy (of `planners`) chooses, and why."""
