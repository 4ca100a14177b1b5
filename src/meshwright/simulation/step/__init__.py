"""One training step of an op-split job, event by event: lowering, the kernel, and what is read off its timeline."""
