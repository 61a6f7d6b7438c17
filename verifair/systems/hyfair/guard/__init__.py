"""Guardrails and retraining (HyFair, mitigation 1 and 2)."""
