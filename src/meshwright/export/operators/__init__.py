"""Plans that put ops on devices as files: device maps, TensorFlow's device lines, pipeline stages of modules."""
