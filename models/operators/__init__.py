"""Networks that place ops on devices, step by step: the encoder of an instance, and the policy."""
