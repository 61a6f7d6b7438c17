"""Audits: an audit file, all analyses, and one page that an auditor can read and re-check."""
