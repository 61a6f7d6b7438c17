"""Explanation and mitigation (HyFair, Algorithm 2): rules, guardrails, retraining."""
