"""Ops placed one after another, compiled: partial schedules, memory, features."""
