"""The analytic time of one training step under a layout, what it consists of, and how sure it is."""
