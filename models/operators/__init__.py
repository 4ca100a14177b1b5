"""Networks that place ops on devices: the encoder of an instance, the step-by-step policy and the one-shot policy."""
