"""meshwright decides how a distributed training job is cut, on which devices and in which rank order it runs."""
