"""A cluster of Linux network namespaces, and jobs of gloo ranks that are measured in it."""
