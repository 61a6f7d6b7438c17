"""What a proof leaves in a file: one format of certificate for each kind, and what they share."""
