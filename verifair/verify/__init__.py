"""Answers to queries: the engine's cascade, certificates, their independent check, and the store."""
