"""The published PAC-ML simulator, reproduced to the digit, and a physical version of it, defect by defect.

Source: Parsonson et al., "Partitioning distributed compute jobs with reinforcement learning and graph neural
networks", 2023 (arXiv 2301.13799), and its simulator, cwfparsonson/ddls at commit 9e0b5ba.
"""
