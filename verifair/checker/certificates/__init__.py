"""Certificates, the files that hold proofs: one format for each kind of proof, and the parts that all formats share."""
