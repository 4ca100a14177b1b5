"""Parts of an evaluation of `JobPartitioning-v0`: episodes, their figures, clairvoyant references, families of benchmarks."""
