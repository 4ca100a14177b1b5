"""Ops placed on devices as an environment: `OperatorPlacement-v0`, its benchmarks and many episodes side by side."""
