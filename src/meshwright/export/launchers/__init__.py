"""Schedulers and launchers that start processes on hosts: Slurm, torchrun, Open MPI, Ray."""
