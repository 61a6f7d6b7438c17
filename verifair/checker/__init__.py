"""Certificates, and the check that proves them again."""
