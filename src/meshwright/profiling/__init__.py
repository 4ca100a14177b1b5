"""From a model in PyTorch to a job graph: traced without memory for weights, its ops counted, and where wanted measured."""
