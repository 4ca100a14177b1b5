"""Arguments and files of training frameworks: Megatron-LM, DeepSpeed, DeviceMesh of torch."""
