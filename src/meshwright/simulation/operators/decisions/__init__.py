"""Ops placed one after another, compiled: partial schedules, memory, features, ops that the policy chooses, refinement."""
