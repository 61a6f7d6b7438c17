"""One audit: a file that names everything, all analyses, one page that an auditor can read and re-check."""
