"""The audit's page: one HTML file without any network access."""

from verifair.auditing.page.render import page

__all__ = ["page"]
