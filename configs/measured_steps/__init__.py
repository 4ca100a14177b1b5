"""YAML files: whole training steps on each device, as `benchmarks.gpu.steps` timed them."""
